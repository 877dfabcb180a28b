"""Every store keeps its contracts, and a store that breaks one is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from zae_limiter.backends.memory import MemoryStore
from zae_limiter.backends.sqlite import SqliteStore
from zae_limiter.core.apply import apply
from zae_limiter.core.bucket import Bucket, take_tokens
from zae_limiter.core.exceptions import ValidationError
from zae_limiter.core.writes import (
    Adjust,
    Create,
    Fill,
    Granted,
    Outcome,
    Refill,
    Take,
    Write,
)
from zae_limiter.ports.io import Io
from zae_limiter.testing import CHECKS, DRIVERS, Check, run_check


async def open_memory(io: Io) -> MemoryStore:
    return MemoryStore()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_the_memory_store_conforms(check: Check, driver: str) -> None:
    run_check(check, open_memory, driver)


# SQLite has no stream of changes: it counts usage in its own writes.
COUNTS_ITSELF = [check for check in CHECKS if check.role != "stream"]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("check", COUNTS_ITSELF, ids=str)
def test_the_sqlite_store_conforms(check: Check, driver: str, tmp_path: Path) -> None:
    path = str(tmp_path / "limits.db")
    run_check(check, lambda io: SqliteStore.open(path, io, create=True), driver)


def test_one_store_serves_all_checks(tmp_path: Path) -> None:
    path = str(tmp_path / "limits.db")
    for check in COUNTS_ITSELF:
        run_check(check, lambda io: SqliteStore.open(path, io, create=True), "threads")


def test_an_unknown_driver_is_refused() -> None:
    with pytest.raises(ValidationError, match="driver"):
        run_check(CHECKS[0], open_memory, "twisted")


def failures(open_store: Callable[[Io], Any], role: str) -> set[str]:
    """The checks of a role that find something wrong."""
    found = set()
    for check in CHECKS:
        if check.role == role:
            try:
                run_check(check, open_store, "threads")
            except (AssertionError, KeyError):
                found.add(check.name)
    return found


def takes_what_is_stored(write: Write) -> TypeGuard[Take]:
    return isinstance(write, Take) and write.refilled_until_ms is None


def any_limits(write: Write, bucket: Bucket | None) -> Outcome:
    if takes_what_is_stored(write) and bucket is not None:
        write = write._replace(fingerprint=bucket.fingerprint)
    return apply(write, bucket)


def overdraft(write: Write, bucket: Bucket | None) -> Outcome:
    if takes_what_is_stored(write) and bucket is not None:
        return Granted(take_tokens(bucket, {n: a for n, a in write.takes_milli.items() if a}, 1))
    return apply(write, bucket)


def any_roof(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Take):
        write = write._replace(roofs_milli=dict.fromkeys(write.takes_milli, 10**20))
    return apply(write, bucket)


def any_age(write: Write, bucket: Bucket | None) -> Outcome:
    if takes_what_is_stored(write):
        write = write._replace(refilled_from_ms=0)
    return apply(write, bucket)


def expired_and_taken_from(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Take):
        write = write._replace(unexpired=False)
    return apply(write, bucket)


def full_at_any_time(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Fill):
        write = write._replace(refilled_by_ms=write.at_ms)
    return apply(write, bucket)


def full_with_less(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Fill):
        write = write._replace(floors_milli={})
    return apply(write, bucket)


def gained_twice(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Take) and write.refilled_until_ms is not None:
        write = write._replace(floors_milli=dict.fromkeys(write.floors_milli, -(10**20)))
    return apply(write, bucket)


def gained_since_any_refill(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Take):
        write = write._replace(refilled_until_ms=None)
    return apply(write, bucket)


def forgetful(write: Write, bucket: Bucket | None) -> Outcome:
    return apply(write, bucket and bucket._replace(recent=()))


def overwriting(write: Write, bucket: Bucket | None) -> Outcome:
    return apply(write, None if isinstance(write, Create) else bucket)


def unlocked(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Refill) and bucket is not None:
        write = write._replace(before=bucket)
    return apply(write, bucket)


def creating(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Refill) and bucket is None:
        return Granted(write.after)
    return apply(write, bucket)


def no_debt(write: Write, bucket: Bucket | None) -> Outcome:
    if isinstance(write, Adjust) and bucket is not None:
        held = {name: cell.tokens_milli for name, cell in bucket.cells.items()}
        write = write._replace(
            deltas_milli={n: min(d, held.get(n, d)) for n, d in write.deltas_milli.items()}
        )
    return apply(write, bucket)


def immortal(write: Write, bucket: Bucket | None) -> Outcome:
    return apply(write, bucket and bucket._replace(expires_at_s=None))


MUTANTS = [
    any_limits,
    overdraft,
    any_roof,
    any_age,
    expired_and_taken_from,
    full_at_any_time,
    full_with_less,
    gained_twice,
    gained_since_any_refill,
    forgetful,
    overwriting,
    unlocked,
    creating,
    no_debt,
    immortal,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_store_that_does_not_agree_with_apply_is_found_out(
    mutant: Callable[[Write, Bucket | None], Outcome],
) -> None:
    async def open_mutant(io: Io) -> MemoryStore:
        return MemoryStore(mutant)

    assert failures(open_mutant, "buckets")


class Overridden:
    """A role of a store with some of its methods replaced."""

    def __init__(self, role: object, **methods: Any) -> None:
        self._role = role
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        method = self._methods.get(name)
        if method is None:
            return getattr(self._role, name)
        return lambda *arguments: method(self._role, *arguments)


async def unversioned(role: Any, *arguments: Any) -> int:
    await role.write(*arguments)
    return 1


async def replacing(
    role: Any, namespace_id: str, slot: Any, change: Any, event: Any, declaration: Any = None
) -> Any:
    page = await role.read(namespace_id, [slot])
    if slot in page.configs:
        await role.delete(namespace_id, slot, event)
    return await role.write(namespace_id, slot, change, event, declaration)


async def unconditional(
    role: Any, namespace_id: str, slot: Any, change: Any, event: Any, declaration: Any = None
) -> Any:
    version = await role.write(namespace_id, slot, change, event)
    if declaration is not None:
        await role.mark(namespace_id, slot, declaration.mark)
    return version


async def unmarked(
    role: Any, namespace_id: str, slot: Any, event: Any, declaration: Any = None
) -> Any:
    return await role.delete(namespace_id, slot, event)


async def endless(role: Any, namespace_id: str, resource: str, limit: int, cursor: Any) -> Any:
    return await role.entities_with_limits(namespace_id, resource, None, None)


async def last_wins(role: Any, namespace_id: str, entity: Any, version: int, event: Any) -> Any:
    stored = await role.read(namespace_id, entity.id)
    return stored and await role.update(namespace_id, entity, stored.version, event)


async def unsorted(role: Any, *arguments: Any) -> Any:
    return (await role.children(*arguments))[::-1]


async def unrecorded(role: Any, namespace_id: str, entity_id: str, event: Any) -> Any:
    return await role.delete(namespace_id, entity_id, replace(event, entity_id="nobody"))


async def keeps_the_record(role: Any, namespace_id: str, event: Any = None) -> int:
    record = await role.read_id(namespace_id)
    purged: int = await role.purge(namespace_id, event)
    await role.register(record)
    return purged


async def purges_in_silence(role: Any, namespace_id: str, event: Any = None) -> Any:
    return await role.purge(namespace_id)


async def takes_the_name(role: Any, namespace_id: str, event: Any = None) -> Any:
    record = await role.read_id(namespace_id)
    if record is not None:
        await role.delete(record.name, "now")
    return await role.recover(namespace_id, event)


async def oldest_first(role: Any, *arguments: Any) -> Any:
    return (await role.read(*arguments))[::-1]


async def one_page(role: Any, namespace_id: str, query: Any, limit: int, cursor: Any) -> Any:
    found, _ = await role.read(namespace_id, query, limit, cursor)
    return found, None


BROKEN = [
    ("configs", {"write": unversioned}),
    ("configs", {"write": replacing}),
    ("configs", {"write": unconditional}),
    ("configs", {"delete": unmarked}),
    ("configs", {"entities_with_limits": endless}),
    ("entities", {"update": last_wins}),
    ("entities", {"children": unsorted}),
    ("entities", {"delete": unrecorded}),
    ("namespaces", {"purge": keeps_the_record}),
    ("namespaces", {"purge": purges_in_silence}),
    ("namespaces", {"recover": takes_the_name}),
    ("audit", {"read": oldest_first}),
    ("usage", {"read": one_page}),
]


@pytest.mark.parametrize(("role", "methods"), BROKEN, ids=lambda part: str(next(iter(part), "")))
def test_a_store_that_breaks_a_contract_is_found_out(role: str, methods: dict[str, Any]) -> None:
    async def open_broken(io: Io) -> MemoryStore:
        store = MemoryStore()
        setattr(store, role, Overridden(getattr(store, role), **methods))
        return store

    assert failures(open_broken, role)
