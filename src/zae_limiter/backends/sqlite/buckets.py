"""Buckets in SQLite: `core.writes.apply` on one row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...core.composite import Bucket, BucketAddress
from ...core.exceptions import StoredDataError
from ...core.usage import UsageCounts, consumption
from ...core.windows import hour_start_ms
from ...core.writes import Granted, Outcome, Write, apply
from ..damage import leave_out
from .codec import ITEM_COLUMNS, Item, decode_item, look_at_s
from .connection import Connection
from .rows import KEY, BucketRows
from .usage import add_usage

_SELECT_ALL = f"SELECT namespace_id, entity_id, resource, shard, {ITEM_COLUMNS} FROM buckets"
_SELECT_ENTITY = f"""
    {_SELECT_ALL} WHERE namespace_id = ? AND entity_id = ? ORDER BY resource, shard
"""
_SELECT_RESOURCE = f"""
    {_SELECT_ALL} WHERE namespace_id = ? AND resource = ? ORDER BY entity_id, shard
"""
_SELECT_DUE = f"{_SELECT_ALL} WHERE look_at_s <= ? ORDER BY look_at_s LIMIT ?"
_DELETE = f"DELETE FROM buckets WHERE {KEY}"
_LOOK_AT = f"UPDATE buckets SET look_at_s = ? WHERE {KEY}"
# Many for each bucket created, so that expired ones cannot pile up: of each round through all
# buckets, those that have been made since are a small part.
_SWEPT_PER_CREATE = 16


class SqliteBuckets:
    """One row for each bucket."""

    metered = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows = BucketRows()

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        return await self._connection.write(lambda db: _write(db, self._rows, address, write))

    async def write_all(self, writes: Sequence[tuple[BucketAddress, Write]]) -> list[Outcome]:
        return await self._connection.write(lambda db: _write_all(db, self._rows, writes))

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        def found(db: sqlite3.Connection) -> dict[BucketAddress, Bucket]:
            items = {address: self._rows.read(db, address) for address in addresses}
            return {address: item.bucket for address, item in items.items() if item is not None}

        return await self._connection.read(found)

    async def of_entity(self, namespace_id: str, entity_id: str) -> dict[BucketAddress, Bucket]:
        return await self._connection.read(
            lambda db: _buckets(db, _SELECT_ENTITY, namespace_id, entity_id)
        )

    async def of_resource(self, namespace_id: str, resource: str) -> dict[BucketAddress, Bucket]:
        return await self._connection.read(
            lambda db: _buckets(db, _SELECT_RESOURCE, namespace_id, resource)
        )


def _write(
    db: sqlite3.Connection, rows: BucketRows, address: BucketAddress, write: Write
) -> Outcome:
    item = rows.read(db, address)
    outcome = apply(write, None if item is None else item.bucket)
    if isinstance(outcome, Granted):
        _keep(db, rows, address, write.at_ms, item, outcome.bucket)
    return outcome


def _write_all(
    db: sqlite3.Connection, rows: BucketRows, writes: Sequence[tuple[BucketAddress, Write]]
) -> list[Outcome]:
    items = [rows.read(db, address) for address, _ in writes]
    outcomes = [
        apply(write, None if item is None else item.bucket)
        for (_, write), item in zip(writes, items, strict=True)
    ]
    granted = [outcome.bucket for outcome in outcomes if isinstance(outcome, Granted)]
    if len(granted) == len(writes):
        kept = zip(writes, items, granted, strict=True)
        # New buckets last: making one sweeps others, which may be among those to be kept.
        for (address, write), item, bucket in sorted(kept, key=lambda each: each[1] is None):
            _keep(db, rows, address, write.at_ms, item, bucket)
    return outcomes


def _keep(
    db: sqlite3.Connection,
    rows: BucketRows,
    address: BucketAddress,
    at_ms: int,
    item: Item | None,
    after: Bucket,
) -> None:
    """Store the bucket that a write made, and count what it used."""
    before = None if item is None else item.bucket
    if after is before:
        return
    used, hour_ms = consumption(before, after), hour_start_ms(at_ms)
    if item is None:
        _sweep(db, at_ms)
        rows.insert(db, address, Item(after, hour_ms, used, look_at_s(after)))
    else:
        usage_ms, usage = _count(db, address, item, hour_ms, used)
        look = look_at_s(after, item.look_at_s)
        rows.update(db, address, item, Item(after, usage_ms, usage, look))


def _buckets(db: sqlite3.Connection, select: str, *key: str) -> dict[BucketAddress, Bucket]:
    """All that are not damaged."""
    found = {}
    for namespace_id, entity_id, resource, shard, *row in db.execute(select, key):
        address = BucketAddress(namespace_id, entity_id, resource, shard)
        try:
            found[address] = decode_item(address, row).bucket
        except StoredDataError as error:
            leave_out(error)
    return found


def _count(
    db: sqlite3.Connection, address: BucketAddress, item: Item, hour_ms: int, used: UsageCounts
) -> tuple[int, UsageCounts]:
    """The hour the row is in and what it holds of it, now that `used` has been counted."""
    if hour_ms < item.hour_ms:
        add_usage(db, address[:3], hour_ms, used)
        return item.hour_ms, item.usage
    if hour_ms > item.hour_ms:
        add_usage(db, address[:3], item.hour_ms, item.usage)
        return hour_ms, used
    total = UsageCounts(dict(item.usage.consumed_milli), item.usage.events)
    total.add(used)
    return hour_ms, total


def _sweep(db: sqlite3.Connection, now_ms: int) -> None:
    """Look at some buckets that may have expired: delete those that have, but keep what they
    have used."""
    due = db.execute(_SELECT_DUE, (now_ms // 1000, _SWEPT_PER_CREATE)).fetchall()
    for namespace_id, entity_id, resource, shard, *row in due:
        address = BucketAddress(namespace_id, entity_id, resource, shard)
        try:
            item = decode_item(address, row)
        except StoredDataError:
            # Whoever uses this bucket will hear of it; the one who is creating another shall not.
            db.execute(_LOOK_AT, (None, *address))
            continue
        if item.bucket.is_expired(now_ms):
            add_usage(db, address[:3], item.hour_ms, item.usage)
            db.execute(_DELETE, address)
        else:
            db.execute(_LOOK_AT, (look_at_s(item.bucket), *address))
