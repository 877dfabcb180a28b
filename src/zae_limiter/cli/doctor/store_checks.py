"""This module has the checks of any store: versions, clock, records, buckets and the file."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...backends.sqlite.store import SqliteStore
from ...core.bucket import BucketAddress, is_ahead
from ...core.exceptions import StoredDataError, StoredDataWarning, ZAELimiterError
from ...core.hierarchy import SYSTEM_SLOT, ConfigSlot
from ...flows.admin.audit import MAX_PAGE
from ...flows.scope import Scope
from ...ports.repository_protocol import EntityQuery, RepositoryProtocol
from ..version import judge_versions
from .finding import Finding, State

_LITTLE_BYTES = 100 * 1024 * 1024
_SHOWN = 5
_READ_AT_ONCE = 50


async def check_versions(store: RepositoryProtocol) -> list[Finding]:
    """Compare this client with what is deployed."""
    found = judge_versions(store)
    state: State = "ok" if not found.advice else "warning" if found.is_usable else "problem"
    return [Finding("versions", state, found.status.lower(), found.advice)]


async def check_file(store: SqliteStore, path: str) -> list[Finding]:
    """Let SQLite check its file, and look at the room on its disk."""
    try:
        wrong = await store.check_file()
    except ZAELimiterError as error:
        wrong = [str(error)]
    if wrong:
        fix = "Stop all clients, and restore the file from a backup."
        return [Finding("file", "problem", "; ".join(wrong), fix)]
    return [check_room(Path(path), ", sound")]


def check_room(file: Path, known: str = "") -> Finding:
    """Look at the room on the disk of a file. `known` is what is known of the file already."""
    free_bytes = shutil.disk_usage(file.resolve().parent).free
    size_mb = file.stat().st_size / 1024 / 1024
    told = f"{size_mb:,.1f} MB{known}, {free_bytes / 1024**3:,.1f} GB free on its disk"
    if free_bytes < _LITTLE_BYTES:
        return Finding("file", "warning", told, "Make room: a full disk refuses every acquire.")
    return Finding("file", "ok", told)


@contextmanager
def _damage() -> Iterator[list[str]]:
    """Gather the records that a store warns of, because they cannot be read."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", StoredDataWarning)
        try:
            yield found
        except StoredDataError as error:
            found.append(str(error))
        found += [str(each.message) for each in seen]


async def check_records(scope: Scope, at_most: int) -> list[Finding]:
    """Read the entities and the stored limits, up to a number of each."""
    entities = 0
    cursor: str | None = None
    with _damage() as damaged:
        while entities < at_most:
            page, cursor = await scope.store.entities.page(
                scope.namespace_id, EntityQuery(), MAX_PAGE, cursor
            )
            entities += len(page)
            if cursor is None:
                break
    slots = [SYSTEM_SLOT, *await _resource_slots(scope), *await _entity_slots(scope, at_most)]
    for start in range(0, len(slots), _READ_AT_ONCE):
        damaged += await _damaged_configs(scope, slots[start : start + _READ_AT_ONCE])
    told = f"{entities:,} entities, {len(slots) - 1:,} records of limits"
    return [_judged("records", told, damaged)]


async def _resource_slots(scope: Scope) -> list[ConfigSlot]:
    resources = await scope.store.configs.resources_with_defaults(scope.namespace_id)
    return [ConfigSlot(None, resource) for resource in resources]


async def _entity_slots(scope: Scope, at_most: int) -> list[ConfigSlot]:
    configs = scope.store.configs
    slots: list[ConfigSlot] = []
    for resource in await configs.resources_with_entity_limits(scope.namespace_id):
        left = at_most - len(slots)
        if left > 0:
            ids, _ = await configs.entities_with_limits(scope.namespace_id, resource, left, None)
            slots += [ConfigSlot(entity_id, resource) for entity_id in ids]
    return slots


async def _damaged_configs(scope: Scope, slots: list[ConfigSlot]) -> list[str]:
    """Read slots together, and one by one if some record cannot be read."""
    with _damage() as damaged:
        await scope.store.configs.read(scope.namespace_id, slots)
    if not damaged or len(slots) == 1:
        return damaged
    return [text for slot in slots for text in await _damaged_configs(scope, [slot])]


@dataclass(slots=True)
class _Tally:
    """A tally counts bucket items, buckets that are split, and items that are ahead of time."""

    items: int = 0
    split: dict[BucketAddress, int] = field(default_factory=dict)
    ahead: list[str] = field(default_factory=list)


async def check_buckets(scope: Scope, at_most: int) -> list[Finding]:
    """Read bucket items, up to a number: damage, split buckets, wrong refill times."""
    tally = _Tally()
    cursor: str | None = None
    with _damage() as damaged:
        while tally.items < at_most:
            page, cursor = await scope.store.buckets.of_namespace_after(scope.namespace_id, cursor)
            tally.items += len(page)
            for address, bucket in page.items():
                if bucket.shard_count > 1:
                    known = tally.split.get(address.home, 0)
                    tally.split[address.home] = max(known, bucket.shard_count)
                if is_ahead(bucket, scope.io.now_ms()):
                    tally.ahead.append(f"{address.entity_id}/{address.resource}")
            if cursor is None:
                break
    more = "" if cursor is None else " (there are more: raise --buckets)"
    told = f"{tally.items:,} bucket items{more}"
    return [_judged("buckets", told, damaged), _splits(tally.split), _refill_times(tally.ahead)]


def _judged(check: str, told: str, damaged: list[str]) -> Finding:
    if not damaged:
        return Finding(check, "ok", told)
    shown = "; ".join(damaged[:_SHOWN])
    return Finding(
        check,
        "problem",
        f"{told}, and {len(damaged)} that cannot be read: {shown}",
        "Look at these records; delete them, or restore them from a backup.",
    )


def _splits(split: dict[BucketAddress, int]) -> Finding:
    if not split:
        return Finding("split buckets", "ok", "none")
    largest = sorted(split.items(), key=lambda each: (-each[1], each[0]))[:_SHOWN]
    shown = ", ".join(f"{home.entity_id}/{home.resource} ({count})" for home, count in largest)
    told = f"{len(split):,} buckets are written so often that they are split: {shown}"
    return Finding("split buckets", "ok", told)


def _refill_times(ahead: list[str]) -> Finding:
    if not ahead:
        return Finding("refill times", "ok", "none is ahead of the store's clock")
    return Finding(
        "refill times",
        "warning",
        f"{len(ahead)} are ahead of the store's clock: {', '.join(ahead[:_SHOWN])}",
        "They are set back when the bucket is used. Find the client with the wrong clock.",
    )
