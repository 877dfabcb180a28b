"""Namespaces: names of tenants, each with an opaque id that all of its data is stored under."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from ...core.audit import AuditAction, AuditEvent, namespace_audit_id
from ...core.exceptions import EntityNotFoundError, NamespaceNotFoundError, NamespaceStateError
from ...core.validation import validate_namespace, validate_principal, validate_text
from ...core.windows import iso_ms
from ...ports.io import Io
from ...ports.repository_protocol import NamespaceRecord, RepositoryProtocol
from .audit import new_event


def _new_id(io: Io) -> str:
    """Eleven URL-safe characters that do not start with a dash."""
    while True:
        namespace_id = base64.urlsafe_b64encode((io.entropy() & (1 << 64) - 1).to_bytes(8)).decode()
        if namespace_id[0] != "-":
            return namespace_id.rstrip("=")


def _new_record(io: Io, name: str) -> NamespaceRecord:
    return NamespaceRecord(validate_namespace(name), _new_id(io), iso_ms(io.now_ms()))


def _event(io: Io, action: str, name: str, principal: str | None) -> AuditEvent:
    return new_event(io, action, namespace_audit_id(name), principal)


async def register(
    store: RepositoryProtocol, io: Io, name: str, principal: str | None = None
) -> NamespaceRecord:
    """The namespace of this name, made if there is none, as somebody asked."""
    record = _new_record(io, name)
    event = _event(io, AuditAction.NAMESPACE_REGISTERED, name, principal)
    return await store.namespaces.register(record, event)


async def ensure(store: RepositoryProtocol, io: Io, name: str) -> NamespaceRecord:
    """The namespace of this name, made if there is none. Nobody asked for that, so it has no audit
    event: a program that opens a store for its work is no author of changes."""
    return await store.namespaces.register(_new_record(io, name))


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
    return await ensure(store, io, name)


async def register_all(
    store: RepositoryProtocol, io: Io, names: Sequence[str], principal: str | None
) -> dict[str, str]:
    """Register several names, all of which are checked first, and return their ids."""
    for name in names:
        validate_namespace(name)
    return {name: (await register(store, io, name, principal)).namespace_id for name in names}


async def look_up(store: RepositoryProtocol, name: str) -> NamespaceRecord | None:
    """The active namespace of this name, if there is one."""
    return await store.namespaces.read(validate_namespace(name))


async def find(store: RepositoryProtocol, name: str) -> NamespaceRecord:
    """The active namespace of this name, or an error."""
    record = await look_up(store, name)
    if record is None:
        raise NamespaceNotFoundError(name)
    return record


async def delete(store: RepositoryProtocol, io: Io, name: str, principal: str | None) -> None:
    """Free the name; the data stays until it is purged or recovered."""
    validate_namespace(name)
    event = _event(io, AuditAction.NAMESPACE_DELETED, name, principal)
    await store.namespaces.delete(name, iso_ms(io.now_ms()), event)


async def recover(
    store: RepositoryProtocol, io: Io, namespace_id: str, principal: str | None
) -> str:
    """Make a deleted namespace active again, and return its name."""
    record = await _look_up_id(store, namespace_id, principal)
    if record is None:
        raise EntityNotFoundError(namespace_id, "Namespace id")
    if record.status != "deleted":
        raise _state_error(record, f"is {record.status}, not deleted", record.status)
    event = _event(io, AuditAction.NAMESPACE_RECOVERED, record.name, principal)
    if not await store.namespaces.recover(namespace_id, event):
        raise _state_error(record, "has been registered again meanwhile", "re-registered")
    return record.name


async def purge(store: RepositoryProtocol, io: Io, namespace_id: str, principal: str | None) -> int:
    """Delete all data of a deleted namespace. Returns how many records went."""
    record = await _look_up_id(store, namespace_id, principal)
    if record is None:
        return 0
    if record.status == "active":
        raise _state_error(record, "is active; delete it first", "active")
    event = _event(io, AuditAction.NAMESPACE_PURGED, record.name, principal)
    return await store.namespaces.purge(namespace_id, event)


async def _look_up_id(
    store: RepositoryProtocol, namespace_id: str, principal: str | None
) -> NamespaceRecord | None:
    """The namespace of this id, whatever its status, for a change of it. Checks all input first."""
    validate_text("namespace_id", namespace_id)
    validate_principal(principal)
    return await store.namespaces.read_id(namespace_id)


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
