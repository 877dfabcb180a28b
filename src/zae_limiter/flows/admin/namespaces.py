"""Namespaces: names of tenants, each with an opaque id that all of its data is stored under."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from ...core.exceptions import EntityNotFoundError, NamespaceNotFoundError, NamespaceStateError
from ...core.validation import validate_namespace, validate_text
from ...core.windows import iso_ms
from ...ports.io import Io
from ...ports.repository_protocol import NamespaceRecord, RepositoryProtocol


def _new_id(io: Io) -> str:
    """Eleven URL-safe characters that do not start with a dash."""
    while True:
        namespace_id = base64.urlsafe_b64encode((io.entropy() & (1 << 64) - 1).to_bytes(8)).decode()
        if namespace_id[0] != "-":
            return namespace_id.rstrip("=")


async def register(store: RepositoryProtocol, io: Io, name: str) -> NamespaceRecord:
    """The namespace of this name, made if there is none."""
    record = NamespaceRecord(validate_namespace(name), _new_id(io), iso_ms(io.now_ms()))
    return await store.namespaces.register(record)


async def find_or_register(store: RepositoryProtocol, io: Io, name: str) -> NamespaceRecord:
    """The namespace of this name, made if there is none and none waits to be recovered. Without
    that condition, a name that was deleted by mistake would come back without its data."""
    found = await look_up(store, name)
    if found is not None:
        return found
    for record in await store.namespaces.orphans():
        if record.name == name and record.status == "deleted":
            problem = "was deleted and not purged: recover it, or register the name anew"
            raise _state_error(record, problem, record.status)
    return await register(store, io, name)


async def register_all(store: RepositoryProtocol, io: Io, names: Sequence[str]) -> dict[str, str]:
    """Register several names, all of which are checked first, and return their ids."""
    for name in names:
        validate_namespace(name)
    return {name: (await register(store, io, name)).namespace_id for name in names}


async def look_up(store: RepositoryProtocol, name: str) -> NamespaceRecord | None:
    """The active namespace of this name, if there is one."""
    return await store.namespaces.read(validate_namespace(name))


async def find(store: RepositoryProtocol, name: str) -> NamespaceRecord:
    """The active namespace of this name, or an error."""
    record = await look_up(store, name)
    if record is None:
        raise NamespaceNotFoundError(name)
    return record


async def delete(store: RepositoryProtocol, io: Io, name: str) -> None:
    """Free the name; the data stays until it is purged or recovered."""
    await store.namespaces.delete(validate_namespace(name), iso_ms(io.now_ms()))


async def recover(store: RepositoryProtocol, namespace_id: str) -> str:
    """Make a deleted namespace active again, and return its name."""
    record = await store.namespaces.read_id(validate_text("namespace_id", namespace_id))
    if record is None:
        raise EntityNotFoundError(namespace_id, "Namespace id")
    if record.status != "deleted":
        raise _state_error(record, f"is {record.status}, not deleted", record.status)
    if not await store.namespaces.recover(namespace_id):
        raise _state_error(record, "has been registered again meanwhile", "re-registered")
    return record.name


async def purge(store: RepositoryProtocol, namespace_id: str) -> int:
    """Delete all data of a deleted namespace. Returns how many records went."""
    record = await store.namespaces.read_id(validate_text("namespace_id", namespace_id))
    if record is None:
        return 0
    if record.status == "active":
        raise _state_error(record, "is active; delete it first", "active")
    return await store.namespaces.purge(namespace_id)


def _state_error(record: NamespaceRecord, problem: str, state: str) -> NamespaceStateError:
    message = f"Namespace '{record.name}' ({record.namespace_id}) {problem}"
    return NamespaceStateError(message, namespace_name=record.name, state=state)


def namespace_dict(record: NamespaceRecord) -> dict[str, str]:
    """A namespace as users see it."""
    return {
        "name": record.name,
        "namespace_id": record.namespace_id,
        "status": record.status,
        "created_at": record.created_at,
    }


def listed_namespace_dict(record: NamespaceRecord) -> dict[str, str]:
    """An active namespace in a list."""
    shown = namespace_dict(record)
    del shown["status"]
    return shown


def orphan_dict(record: NamespaceRecord) -> dict[str, str]:
    """A deleted namespace as users see it."""
    return {
        "namespace_id": record.namespace_id,
        "namespace": record.name,
        "deleted_at": record.deleted_at or "",
    }
