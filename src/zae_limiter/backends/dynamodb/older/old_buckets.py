"""Buckets of the older shapes: a client that needs one moves it, in one transaction.

The items of an old bucket are deleted in the transaction that puts today's item, each under the
condition that it is as it was read. So a balance is never in force twice, and never lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ....core.bucket import Bucket, BucketAddress, Cell, is_ahead, refill
from ....core.rates import rate_of
from ..bucket_codec import bucket_key, decode_bucket_item, encode_bucket_item
from ..codec import decode_namespace_item
from ..contention import race, won
from ..expressions import IS_NEW, Field, Term
from ..item_reader import ItemReader, decode_record
from ..pages import Query, read_pages
from ..schema import (
    REGISTRY_ID,
    gsi2_pk_resource,
    key,
    pk_entity,
    pk_system,
    sk_namespace,
)
from ..table import Action, Key, Table, key_of
from ..wire.values import Item, from_attribute
from .records import OLD_BUCKET_SK, USAGE_SK, flattened

_FIRST_NAMESPACE = "default"


class OldBuckets:
    """The buckets of a table that have not been moved yet. `first_id` is the namespace that keys
    without one belong to, where that is known already."""

    def __init__(self, table: Table, first_id: str | None = None) -> None:
        self._table = table
        self._first_id = first_id

    async def look(self, address: BucketAddress) -> Bucket | None:
        """Return the bucket as it will be when it is moved; None where there is no old one."""
        items = await self._items(address)
        return self._decoded(address, items) if items else None

    async def adopt(self, address: BucketAddress) -> Bucket | None:
        """Move the bucket, or find it moved by another client. None where there is no old one."""
        if address.shard:
            return None

        async def attempt() -> list[Bucket] | None:
            items = await self._items(address)
            if not items:
                return []
            bucket = self._decoded(address, items)
            if await won(self._table, self._moving(address, bucket, items)):
                return [bucket]
            stored = await self._table.get(bucket_key(address), consistent=True)
            if stored is None:
                return None
            # Today's item is in force, so what is left of the old one counts for nothing.
            await self._table.batch_delete(map(key_of, items))
            return [decode_bucket_item(address, stored)]

        moved = await race(self._table, f"bucket {address}", attempt)
        return moved[0] if moved else None

    async def adopt_together(self, old: Mapping[BucketAddress, Sequence[Item]]) -> bool:
        """Move several buckets, all of whose items are known, in one transaction. False, and none
        is moved, when one of them has been moved or changed meanwhile."""
        actions: list[Action] = []
        for address, items in old.items():
            actions += self._moving(address, self._decoded(address, items), items)
        return await won(self._table, actions)

    async def is_whole(self, address: BucketAddress, items: Sequence[Item]) -> bool:
        """Return whether these are all items of a bucket, given that they are all of a partition.
        Versions that began to write the namespace into keys left items without it behind."""
        seen = {item["PK"]["S"] for item in items}
        partitions = await self._partitions(address.namespace_id, address.entity_id)
        others = [pk for pk in partitions if pk not in seen]
        return not any([await self._items_in(pk, address.resource) for pk in others])

    def _decoded(self, address: BucketAddress, items: Sequence[Item]) -> Bucket:
        return decode_old_bucket(address, items, self._table.io.now_ms())

    def _moving(
        self, address: BucketAddress, bucket: Bucket, items: Sequence[Item]
    ) -> list[Action]:
        """Return the actions that put today's item and delete the old ones, if they are as they
        were read."""
        putting = self._table.putting(encode_bucket_item(address, bucket), IS_NEW)
        return [putting, *(self._table.deleting(key_of(i), _unchanged(i)) for i in items)]

    async def of_entity(self, namespace_id: str, entity_id: str) -> dict[BucketAddress, Bucket]:
        """Return all old buckets of an entity, as they will be when they are moved."""
        by_resource: dict[str, list[Item]] = defaultdict(list)
        for pk in await self._partitions(namespace_id, entity_id):
            for item in await read_pages(self._table, Query(pk, OLD_BUCKET_SK)):
                by_resource[old_resource(item["SK"]["S"])].append(item)
        addresses = {r: BucketAddress(namespace_id, entity_id, r) for r in by_resource}
        return {addresses[r]: self._decoded(addresses[r], by_resource[r]) for r in by_resource}

    async def of_resource(self, namespace_id: str, resource: str) -> dict[BucketAddress, Bucket]:
        """Return all old buckets of a resource, as they will be when they are moved."""
        partitions = [gsi2_pk_resource(namespace_id, resource)]
        if namespace_id == await self.first_namespace_id():
            partitions.append(f"RESOURCE#{resource}")
        addresses: set[BucketAddress] = set()
        for pk in partitions:
            for entry in await read_pages(self._table, Query(pk, "BUCKET#", index="GSI2")):
                if entry["SK"]["S"].startswith(OLD_BUCKET_SK):
                    entity_id = entry["PK"]["S"].partition("ENTITY#")[2]
                    addresses.add(BucketAddress(namespace_id, entity_id, resource))
        seen = {address: await self.look(address) for address in sorted(addresses)}
        return {address: bucket for address, bucket in seen.items() if bucket is not None}

    async def keys(self, namespace_id: str, entity_id: str) -> list[Key]:
        """Return the keys of all old buckets and usage of an entity."""
        found: list[Key] = []
        for pk in await self._partitions(namespace_id, entity_id):
            for prefix in (OLD_BUCKET_SK, USAGE_SK):
                items = await read_pages(self._table, Query(pk, prefix, attributes=("PK", "SK")))
                found += map(key_of, items)
        return found

    async def _items(self, address: BucketAddress) -> list[Item]:
        """Return the old items of a bucket: one for all limits, or one for each."""
        found: list[Item] = []
        for pk in await self._partitions(address.namespace_id, address.entity_id):
            found += await self._items_in(pk, address.resource)
        return found

    async def _items_in(self, pk: str, resource: str) -> list[Item]:
        items = await read_pages(self._table, Query(pk, f"{OLD_BUCKET_SK}{resource}"))
        return [item for item in items if old_resource(item["SK"]["S"]) == resource]

    async def _partitions(self, namespace_id: str, entity_id: str) -> list[str]:
        mine = [pk_entity(namespace_id, entity_id)]
        if namespace_id == await self.first_namespace_id():
            mine.append(f"ENTITY#{entity_id}")
        return mine

    async def first_namespace_id(self) -> str | None:
        """Return the id of the namespace that keys without one belong to."""
        if self._first_id is None:
            place = key(pk_system(REGISTRY_ID), sk_namespace(_FIRST_NAMESPACE))
            item = await self._table.get(place, consistent=True)
            self._first_id = None if item is None else decode_namespace_item(item).namespace_id
        return self._first_id


def old_resource(sk: str) -> str:
    """Return the resource of an old bucket's sort key."""
    return sk.removeprefix(OLD_BUCKET_SK).partition("#")[0]


def decode_old_bucket(address: BucketAddress, items: Sequence[Item], now_ms: int) -> Bucket:
    """Return today's bucket of the old items. Limits that were refilled at different times are
    refilled to the latest of these, each by its own rate.

    Older versions left items behind when they took to another shape. Of a limit that is in several
    items, the one that was refilled last is in force, and of two at one time the smaller balance.

    Consumption is counted from zero: the reader of the table's stream counts what a new item has
    consumed, and has counted what the old one had.
    """
    read = (_without_lead(_part(address, item), now_ms) for item in items)
    parts = sorted(read, key=lambda part: part.refilled_at_ms)
    latest = parts[-1]
    cells: dict[str, Cell] = {}
    times_ms: dict[str, int] = {}
    for part in parts:
        for name, cell in refill(part, latest.refilled_at_ms).cells.items():
            is_newer = times_ms.get(name) != part.refilled_at_ms
            if is_newer or cell.tokens_milli < cells[name].tokens_milli:
                cells[name], times_ms[name] = cell, part.refilled_at_ms
    uncounted = {name: cell._replace(consumed_milli=0) for name, cell in cells.items()}
    return latest._replace(
        cells=uncounted,
        expires_at_s=_last_expiry([part.expires_at_s for part in parts]),
        fingerprint="",
        recent=(),
        acquires=0,
    )


def _without_lead(part: Bucket, now_ms: int) -> Bucket:
    """Set back a refill time that a wrong clock wrote. Without this, all other limits of the bucket
    would gain the time up to it."""
    return part._replace(refilled_at_ms=now_ms) if is_ahead(part, now_ms) else part


def _last_expiry(times_s: Sequence[int | None]) -> int | None:
    """Return the time at which the last part expires; None when one never does."""
    known = [at_s for at_s in times_s if at_s is not None]
    return max(known) if len(known) == len(times_s) else None


def _part(address: BucketAddress, item: Item) -> Bucket:
    """Read an item of one limit, or of all limits."""
    if item["SK"]["S"].count("#") > _SIGNS_OF_COMPOSITE:
        return decode_record(item, _single)
    return decode_bucket_item(address, flattened(item))


_SIGNS_OF_COMPOSITE = 2


def _single(reader: ItemReader) -> Bucket:
    """Read an item of one limit."""
    fields = ItemReader(flattened(reader.item))
    name = reader.text("SK").rpartition("#")[2]
    ceiling = fields.maybe_integer("burst_milli") or fields.integer("capacity_milli")
    rate = rate_of(
        ceiling, fields.integer("refill_amount_milli"), fields.integer("refill_period_ms")
    )
    if min(rate) <= 0:
        raise ValueError(f"limit {name} never refills")
    tokens = fields.integer("tokens_milli")
    expires_at_s = fields.maybe_integer("ttl")
    return Bucket(
        {name: Cell(tokens, rate)},
        fields.integer("last_refill_ms"),
        "",
        expires_at_s=expires_at_s,
    )


def _unchanged(item: Item) -> Iterator[Term]:
    """Require an old item to hold what was read."""
    yield from (Field(name).equals(from_attribute(item[name])) for name in _telling(item))


def _telling(item: Item) -> Iterable[str]:
    """Return the attributes that every write of an old client changes."""
    if "data" in item:
        return [name for name in ("data", "total_consumed_milli") if name in item]
    flat = ("rf", "tokens_milli", "last_refill_ms", "total_consumed_milli")
    return [name for name in item if name in flat or name.endswith(("_tk", "_tc"))]
