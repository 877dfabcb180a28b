"""Buckets of the older shapes: a client that needs one moves it, in one transaction.

The items of an old bucket are deleted in the transaction that puts today's item, each under the
condition that it is as it was read. So a balance is never in force twice, and never lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ....core.bucket import Bucket, BucketAddress, Cell, refill
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
        return decode_old_bucket(address, items) if items else None

    async def adopt(self, address: BucketAddress) -> Bucket | None:
        """Move the bucket, or find it moved by another client. None where there is no old one."""
        if address.shard:
            return None

        async def attempt() -> list[Bucket] | None:
            items = await self._items(address)
            if not items:
                return []
            bucket = decode_old_bucket(address, items)
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
            actions += self._moving(address, decode_old_bucket(address, items), items)
        return await won(self._table, actions)

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
        return {addresses[r]: decode_old_bucket(addresses[r], by_resource[r]) for r in by_resource}

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
            query = Query(pk, f"{OLD_BUCKET_SK}{address.resource}")
            items = await read_pages(self._table, query)
            found += [i for i in items if old_resource(i["SK"]["S"]) == address.resource]
        return found

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


def decode_old_bucket(address: BucketAddress, items: Sequence[Item]) -> Bucket:
    """Return today's bucket of the old items. Limits that were refilled at different times are
    refilled to the latest of these, each by its own rate.

    Consumption is counted from zero: the reader of the table's stream counts what a new item has
    consumed, and has counted what the old one had.
    """
    single = [item for item in items if item["SK"]["S"].count("#") > _SIGNS_OF_COMPOSITE]
    parts = [decode_record(item, _single) for item in single]
    composite = [item for item in items if item not in single]
    parts += [decode_bucket_item(address, flattened(item)) for item in composite]
    refilled_at_ms = max(part.refilled_at_ms for part in parts)
    cells: dict[str, Cell] = {}
    for part in parts:
        cells |= refill(part, refilled_at_ms).cells
    latest = parts[-1]
    uncounted = {name: cell._replace(consumed_milli=0) for name, cell in cells.items()}
    return latest._replace(
        cells=uncounted, refilled_at_ms=refilled_at_ms, fingerprint="", recent=(), acquires=0
    )


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
