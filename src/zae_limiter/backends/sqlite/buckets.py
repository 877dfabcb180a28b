"""Buckets in SQLite: `core.apply.apply` on one row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...core.apply import apply
from ...core.bucket import Bucket, BucketAddress, is_another
from ...core.exceptions import StoredDataError
from ...core.usage import UsageCounts, consumption
from ...core.windows import hour_start_ms
from ...core.writes import Outcome, Write
from ..damage import readable
from ..locked_buckets import fence_locked, write_all_locked, write_locked
from .codec import (
    BUCKET_COLUMNS,
    NOTHING_COUNTED,
    BucketRow,
    Row,
    decode_bucket_row,
    decode_usage,
    encode_counters,
    look_at_s,
    shape_of,
)
from .connection import Connection
from .rows import KEY, insert_bucket_row, read_bucket_row, update_bucket_row
from .usage import add_usage

_SELECT_ALL = f"SELECT namespace_id, entity_id, resource, shard, {BUCKET_COLUMNS} FROM buckets"
_SELECT_ENTITY = f"""
    {_SELECT_ALL} WHERE namespace_id = ? AND entity_id = ? ORDER BY resource, shard
"""
_SELECT_RESOURCE = f"""
    {_SELECT_ALL} WHERE namespace_id = ? AND +resource = ? AND entity_id > ? AND entity_id <= ?
    ORDER BY entity_id, shard
"""
# Few: a page is decoded in less than a millisecond, for which other threads wait.
_ENTITIES_IN_PAGE = 50
# The sign keeps SQLite from the index by resource, by which it would sort all rows for each page.
_SELECT_ENTITIES_AFTER = f"""
    SELECT DISTINCT entity_id FROM buckets
    WHERE namespace_id = ? AND +resource = ? AND entity_id > ?
    ORDER BY entity_id LIMIT {_ENTITIES_IN_PAGE}
"""
_SELECT_RANGE = f"""
    {_SELECT_ALL} WHERE namespace_id = ? AND entity_id > ? AND entity_id <= ?
    ORDER BY entity_id, resource, shard
"""
_SELECT_OWNERS_AFTER = f"""
    SELECT DISTINCT entity_id FROM buckets WHERE namespace_id = ? AND entity_id > ?
    ORDER BY entity_id LIMIT {_ENTITIES_IN_PAGE}
"""
_SELECT_DUE = f"{_SELECT_ALL} WHERE look_at_s <= ? ORDER BY look_at_s LIMIT ?"
_DELETE = f"DELETE FROM buckets WHERE {KEY}"
_LOOK_AT = f"UPDATE buckets SET look_at_s = ? WHERE {KEY}"
# Many are looked at for each bucket that is created. Without this, expired buckets would pile up.
_SWEPT_PER_CREATE = 16


class SqliteBuckets:
    """The bucket items, one row each."""

    metered = False

    def __init__(self, connection: Connection, reader: Connection) -> None:
        self._connection = connection
        self._reader = reader

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        return await self._connection.write(
            lambda db: write_locked(BucketRows(db), apply, address, write)
        )

    async def write_all(self, writes: Sequence[tuple[BucketAddress, Write]]) -> list[Outcome]:
        return await self._connection.write(
            lambda db: write_all_locked(BucketRows(db), apply, writes)
        )

    async def fence(self, address: BucketAddress, operation: str) -> Bucket | None:
        return await self._connection.write(
            lambda db: fence_locked(BucketRows(db), address, operation)
        )

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        def found(db: sqlite3.Connection) -> dict[BucketAddress, Bucket]:
            items = {address: read_bucket_row(db, address) for address in addresses}
            return {address: item.bucket for address, item in items.items() if item is not None}

        return await self._connection.read(found)

    async def of_entity(self, namespace_id: str, entity_id: str) -> dict[BucketAddress, Bucket]:
        return await self._reader.read(
            lambda db: _buckets(db, _SELECT_ENTITY, namespace_id, entity_id)
        )

    async def of_resource(self, namespace_id: str, resource: str) -> dict[BucketAddress, Bucket]:
        found: dict[BucketAddress, Bucket] = {}
        cursor: str | None = None
        while True:
            page, cursor = await self.of_resource_after(namespace_id, resource, cursor)
            found |= page
            if cursor is None:
                return found

    async def of_resource_after(
        self, namespace_id: str, resource: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        key = (namespace_id, resource, cursor or "")
        return await self._reader.read(
            lambda db: _page(db, _SELECT_ENTITIES_AFTER, _SELECT_RESOURCE, key)
        )

    async def of_namespace_after(
        self, namespace_id: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        key = (namespace_id, cursor or "")
        return await self._reader.read(
            lambda db: _page(db, _SELECT_OWNERS_AFTER, _SELECT_RANGE, key)
        )


class BucketRows:
    """The rows of one transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._found: dict[BucketAddress, BucketRow] = {}

    def find(self, address: BucketAddress) -> Bucket | None:
        item = read_bucket_row(self._db, address)
        if item is None:
            return None
        self._found[address] = item
        return item.bucket

    def keep(
        self, address: BucketAddress, at_ms: int, before: Bucket | None, after: Bucket
    ) -> None:
        db, hour_ms = self._db, hour_start_ms(at_ms)
        if before is not None and is_another(before, after):
            replaced = self._found[address]
            _drop(db, address, replaced.hour_ms, decode_usage(address, replaced))
            before = None
        if before is None:
            _sweep(db, at_ms)
            made = BucketRow(after, shape_of(after), hour_ms, NOTHING_COUNTED, look_at_s(after))
            insert_bucket_row(db, address, made)
        else:
            item = self._found[address]
            counted = _count(db, address, item, hour_ms, after)
            look = look_at_s(after, item.look_at_s)
            update_bucket_row(db, address, item, BucketRow(after, shape_of(after), *counted, look))

    def replace(self, address: BucketAddress, bucket: Bucket) -> None:
        item = self._found[address]
        update_bucket_row(self._db, address, item, item._replace(bucket=bucket))


def _buckets(db: sqlite3.Connection, select: str, *key: str) -> dict[BucketAddress, Bucket]:
    """Return the buckets that can be read."""
    return dict(readable(_addressed, db.execute(select, key)))


def _page(
    db: sqlite3.Connection, select_ids: str, select: str, key: tuple[str, ...]
) -> tuple[dict[BucketAddress, Bucket], str | None]:
    """Return the buckets of the next entities, and the last of these if others may follow."""
    ids = [entity_id for (entity_id,) in db.execute(select_ids, key)]
    if not ids:
        return {}, None
    found = _buckets(db, select, *key, ids[-1])
    return found, ids[-1] if len(ids) == _ENTITIES_IN_PAGE else None


def _addressed(row: Row) -> tuple[BucketAddress, Bucket]:
    address = BucketAddress(*row[:4])
    return address, decode_bucket_row(address, row[4:]).bucket


def _count(
    db: sqlite3.Connection, address: BucketAddress, item: BucketRow, hour_ms: int, after: Bucket
) -> tuple[int, str]:
    """Return the hour of the row, and the counters at its beginning. Usage that the counters can
    tell no longer, because the hour or a limit is over, goes to the table `usage`."""
    before = item.bucket
    if hour_ms == item.hour_ms and before.cells.keys() <= after.cells.keys():
        return item.hour_ms, item.counted
    add_usage(db, address[:3], item.hour_ms, decode_usage(address, item))
    if hour_ms >= item.hour_ms:
        return hour_ms, encode_counters(before, after)
    add_usage(db, address[:3], hour_ms, consumption(before, after))
    return item.hour_ms, encode_counters(after, after)


def _drop(db: sqlite3.Connection, address: BucketAddress, hour_ms: int, used: UsageCounts) -> None:
    """Delete a bucket, but keep its usage."""
    add_usage(db, address[:3], hour_ms, used)
    db.execute(_DELETE, address)


def _sweep(db: sqlite3.Connection, now_ms: int) -> None:
    """Look at some buckets that may have expired: delete the expired ones, but keep their usage."""
    due = db.execute(_SELECT_DUE, (now_ms // 1000, _SWEPT_PER_CREATE)).fetchall()
    for namespace_id, entity_id, resource, shard, *row in due:
        address = BucketAddress(namespace_id, entity_id, resource, shard)
        try:
            item = decode_bucket_row(address, row)
            used = decode_usage(address, item)
        except StoredDataError:
            # The caller creates another bucket and must not fail for this one, whose own users
            # will get the error.
            db.execute(_LOOK_AT, (None, *address))
            continue
        if item.bucket.is_expired(now_ms):
            _drop(db, address, item.hour_ms, used)
        else:
            db.execute(_LOOK_AT, (look_at_s(item.bucket), *address))
