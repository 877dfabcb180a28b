"""The namespace registry in DynamoDB.

Each namespace has a record by its id, and while it is active one by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...core.audit import AuditEvent
from ...core.exceptions import StorageUnavailable
from ...ports.repository_protocol import NamespaceRecord
from ..damage import readable
from ..states import still_active
from .audit import Recorder
from .codec import decode_namespace_item, encode_namespace_item
from .contention import halfway, race, won
from .expressions import IS_NEW, Field
from .pages import Query, read_page, read_pages
from .schema import REGISTRY_ID, key, pk_receipts, pk_system, sk_namespace, sk_nsid
from .table import Action, Key, Table, key_of

_REGISTRY = pk_system(REGISTRY_ID)
_STATUS = Field("status")
# An index is eventually consistent: it shows new records, and hides deleted ones, a little late.
_PURGE_ROUNDS = 10
_PURGE_WAIT_S = 0.2


class DynamoNamespaces:
    """The registry, and the end of a namespace's data."""

    def __init__(self, table: Table, recorder: Recorder) -> None:
        self._table = table
        self._recorder = recorder

    async def register(
        self, record: NamespaceRecord, event: AuditEvent | None = None
    ) -> NamespaceRecord:
        async def attempt() -> NamespaceRecord | None:
            existing = await self.read(record.name)
            if existing is not None:
                return existing
            actions = [self._naming(record), self._introducing(record)]
            return record if await self._won(actions, record, event) else None

        return await race(self._table, f"namespace {record.name}", attempt)

    async def read(self, name: str) -> NamespaceRecord | None:
        record = await self._read(sk_namespace(name))
        return record if record is not None and record.status == "active" else None

    async def read_id(self, namespace_id: str) -> NamespaceRecord | None:
        return await self._read(sk_nsid(namespace_id))

    async def active(self) -> list[NamespaceRecord]:
        records = await self._records(sk_namespace(""))
        return [record for record in records if record.status == "active"]

    async def orphans(self) -> list[NamespaceRecord]:
        """Return deleted namespaces, also those whose purge was interrupted."""
        return [record for record in await self._records(sk_nsid("")) if record.status != "active"]

    async def delete(self, name: str, deleted_at: str, event: AuditEvent | None = None) -> None:
        async def attempt() -> bool | None:
            record = await self.read(name)
            if record is None:
                return True
            deleted = replace(record, status="deleted", deleted_at=deleted_at)
            actions = [self._unnaming(record), self._marking(deleted, "active")]
            return True if await self._won(actions, record, event) else None

        await race(self._table, f"namespace {name}", attempt)

    async def recover(self, namespace_id: str, event: AuditEvent | None = None) -> bool:
        async def attempt() -> bool | None:
            record = await self.read_id(namespace_id)
            if record is None or record.status != "deleted":
                return False
            if await self.read(record.name) is not None:
                return False
            active = replace(record, status="active", deleted_at=None)
            actions = [self._naming(active), self._marking(active, "deleted")]
            return True if await self._won(actions, record, event) else None

        return await race(self._table, f"namespace {namespace_id}", attempt)

    async def purge(self, namespace_id: str, event: AuditEvent | None = None) -> int:
        record = await self.read_id(namespace_id)
        if record is None:
            return 0
        await self._begin_purge(record, event)
        with halfway(f"Purging namespace {namespace_id}"):
            purged = await self._purge_data(namespace_id)
            await self._table.delete(_key(sk_nsid(namespace_id)))
        return purged

    async def _read(self, sk: str) -> NamespaceRecord | None:
        item = await self._table.get(_key(sk), consistent=True)
        return None if item is None else decode_namespace_item(item)

    async def _records(self, prefix: str) -> list[NamespaceRecord]:
        items = await read_pages(self._table, Query(_REGISTRY, prefix))
        records = readable(decode_namespace_item, items)
        return sorted(records, key=lambda record: (record.name, record.namespace_id))

    def _naming(self, record: NamespaceRecord) -> Action:
        """Return the action that takes the name, if it is free."""
        is_free = _STATUS.differs_or_is_absent("active")
        return self._table.putting(
            encode_namespace_item(record, sk_namespace(record.name)), [is_free]
        )

    def _unnaming(self, record: NamespaceRecord) -> Action:
        """Return the action that frees the name, if it still is this namespace's."""
        is_ours = Field("namespace_id").equals(record.namespace_id)
        return self._table.deleting(_key(sk_namespace(record.name)), [is_ours])

    def _introducing(self, record: NamespaceRecord) -> Action:
        """Return the action that takes the id, if it is new."""
        return self._table.putting(
            encode_namespace_item(record, sk_nsid(record.namespace_id)), IS_NEW
        )

    def _marking(self, record: NamespaceRecord, seen_status: str) -> Action:
        """Return the action that changes the status, as a compare-and-set."""
        terms = [
            _STATUS.equals(seen_status),
            _STATUS.set(record.status),
            Field("deleted_at").set_or_remove(record.deleted_at),
        ]
        return self._table.updating(_key(sk_nsid(record.namespace_id)), terms)

    async def _won(
        self, actions: Sequence[Action], record: NamespaceRecord, event: AuditEvent | None
    ) -> bool:
        """Change the registry and record the event; False when a record was stale."""
        if event is not None:
            detailed = event.with_details(namespace_id=record.namespace_id)
            actions = [*actions, await self._recorder.recording(REGISTRY_ID, detailed)]
        return await won(self._table, actions)

    async def _begin_purge(self, record: NamespaceRecord, event: AuditEvent | None) -> None:
        """Mark the namespace: from here on it cannot be recovered."""
        terms = [_STATUS.differs_or_is_absent("active"), _STATUS.set("purging")]
        marking = self._table.updating(_key(sk_nsid(record.namespace_id)), terms)

        async def attempt() -> bool | None:
            if await self._won([marking], record, event):
                return True
            found = await self.read_id(record.namespace_id)
            if found is not None and found.status == "active":
                raise still_active(found)
            return None

        await race(self._table, f"namespace {record.namespace_id}", attempt)

    async def _purge_data(self, namespace_id: str) -> int:
        purged = await self._delete_all(Query(namespace_id, index="GSI4"))
        # Older clients left the records of this partition out of the index.
        purged += await self._delete_all(Query(pk_system(namespace_id), attributes=("PK", "SK")))
        for partition in pk_receipts(namespace_id):
            purged += await self._delete_all(Query(partition, attributes=("PK", "SK")))
        for _ in range(_PURGE_ROUNDS):
            late = await self._still_there(namespace_id)
            if not late:
                return purged
            purged += await self._table.batch_delete(late)
            await self._table.io.pause(_PURGE_WAIT_S)
        raise StorageUnavailable(f"Namespace {namespace_id} is still being written to")

    async def _delete_all(self, query: Query) -> int:
        deleted, start = 0, None
        while True:
            items, start = await read_page(self._table, query, start)
            deleted += await self._table.batch_delete(map(key_of, items))
            if start is None:
                return deleted

    async def _still_there(self, namespace_id: str) -> list[Key]:
        listed = await read_pages(self._table, Query(namespace_id, index="GSI4"))
        found = await self._table.batch_get(map(key_of, listed), consistent=True)
        return [key_of(item) for item in found]


def _key(sk: str) -> Key:
    return key(_REGISTRY, sk)
