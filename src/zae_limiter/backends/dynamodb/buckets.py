"""Bucket items in DynamoDB."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...core.apply import created
from ...core.bucket import Bucket, BucketAddress
from ...core.exceptions import StorageUnavailable, StoredDataError
from ...core.writes import ABSENT, UNSEEN, Absent, Adjust, Create, Granted, Outcome, Refused, Write
from ..damage import readable
from . import schema
from .bucket_codec import address_of, bucket_key, decode_bucket_item
from .bucket_writes import ALL_NEW, Change, applicable, change, creation, fence
from .item_reader import record_name
from .older.old_buckets import OldBuckets
from .pages import Query, read_page, read_pages
from .table import Action, Table, key_of
from .wire.errors import ConditionFailed, Reason, RequestInvalid, TransactionCanceled
from .wire.values import Item

# A refund is sent again only when other writes moved the balance across its condition.
_MAX_ATTEMPTS = 16
CONDITION_FAILED = "ConditionalCheckFailed"


class DynamoBuckets:
    """The bucket items: one for each bucket, or for each shard of it."""

    metered = True

    def __init__(self, table: Table) -> None:
        self._table = table
        # In a table that is being migrated, buckets of an older shape.
        self.older: OldBuckets | None = None
        # A store that was not opened learns before its first creation whether that is so.
        self.learn: Callable[[], Awaitable[None]] | None = None

    def write(self, address: BucketAddress, write: Write) -> Coroutine[Any, Any, Outcome]:
        if isinstance(write, Create):
            return self._create(address, write)
        if isinstance(write, Adjust):
            return self._adjust(address, write)
        return self._change(address, write)

    async def _create(self, address: BucketAddress, write: Create) -> Outcome:
        if self.learn is not None:
            await self.learn()
        if self.older is not None:
            moved = await self.older.adopt(address)
            if moved is not None:
                return Refused(moved)
        try:
            await self._table.call("PutItem", creation(self._table.name, address, write))
        except ConditionFailed as refusal:
            return _outcome(address, write, refusal.item)
        return Granted(created(write)._replace(recent=(write.operation,)))

    async def _change(self, address: BucketAddress, write: Change) -> Outcome:
        table = self._table
        request = change(table.name, address, write, ALL_NEW)
        try:
            answer = await table.call("UpdateItem", request)
        except ConditionFailed as refusal:
            return _outcome(address, write, refusal.item)
        except RequestInvalid:
            await self._blame([address])
            raise
        return Granted(decode_bucket_item(address, _attributes(answer)))

    async def _adjust(self, address: BucketAddress, write: Adjust) -> Outcome:
        """Charge in one call, or give back up to the ceiling, which must be known first. Where
        there is no item, the write makes one if it has one to make."""
        seen = write.seen
        if seen is None or not write.deltas_milli.keys() <= seen.cells.keys():
            seen = (await self.read([address])).get(address)
        for _ in range(_MAX_ATTEMPTS):
            outcome = await self._adjust_seen(address, write, seen)
            if isinstance(outcome, Refused) and _may_apply(write, outcome.bucket):
                seen = outcome.bucket
            elif seen is not None and isinstance(outcome, Absent):
                seen = None
            else:
                return outcome
        raise StorageUnavailable(f"{address} is too contended")

    async def _adjust_seen(
        self, address: BucketAddress, write: Adjust, seen: Bucket | None
    ) -> Outcome:
        if seen is not None:
            return await self._change(address, applicable(write, seen))
        if write.anew is None:
            return ABSENT
        return await self._create(address, Create(write.operation, write.at_ms, write.anew))

    async def fence(self, address: BucketAddress, operation: str) -> Bucket | None:
        try:
            request = fence(self._table.name, address, operation)
            item: Item | None = _attributes(await self._table.call("UpdateItem", request))
        except ConditionFailed as refusal:
            item = refusal.item
        return decode_bucket_item(address, item) if item else None

    async def write_all(self, writes: Sequence[tuple[BucketAddress, Write]]) -> list[Outcome]:
        outcomes = await self.write_beside(writes, None, writes[0][1].operation)
        assert isinstance(outcomes, list)
        return outcomes

    async def write_beside(
        self, writes: Sequence[tuple[BucketAddress, Write]], other: Action | None, token: str
    ) -> list[Outcome] | Reason:
        """Carry out writes and an action on another record, all or none. Return the reason why that
        action was refused, if it was."""
        if self.learn is not None:
            await self.learn()
        if self.older is not None:
            moved = await self._adopt_all([a for a, write in writes if isinstance(write, Create)])
            if moved:
                return [Refused(moved[a]) if a in moved else Granted(UNSEEN) for a, _ in writes]
        actions = [_action(self._table.name, address, write) for address, write in writes]
        try:
            await self._table.transact([*actions, *([other] if other else ())], token=token)
        except TransactionCanceled as refusal:
            *reasons, last = _reasons(refusal, len(actions) + (other is not None))
            if other is None:
                reasons.append(last)
            elif last.code == CONDITION_FAILED:
                return last
            return [
                _reason(address, write, reason)
                for (address, write), reason in zip(writes, reasons, strict=True)
            ]
        except RequestInvalid:
            await self._blame([address for address, _ in writes])
            raise
        return await self._images([address for address, _ in writes])

    async def _images(self, addresses: Sequence[BucketAddress]) -> list[Outcome]:
        """Return the outcomes of a transaction, which answers without images. It has been carried
        out, whatever became of the items since, and whether or not they can be read."""
        found: Mapping[BucketAddress, Bucket] = {}
        with suppress(StorageUnavailable, StoredDataError):
            found = await self.read(addresses)
        return [Granted(found.get(address, UNSEEN)) for address in addresses]

    async def _adopt_all(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        """Move the old buckets at these addresses, if there are any."""
        assert self.older is not None
        adopted = {address: await self.older.adopt(address) for address in addresses}
        return {address: bucket for address, bucket in adopted.items() if bucket is not None}

    async def _blame(self, addresses: Sequence[BucketAddress]) -> None:
        """Read the items: if damage of one made the request invalid, that raises."""
        await self.read(addresses)

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        keys = [bucket_key(address) for address in addresses]
        found = dict(map(_addressed, await self._table.batch_get(keys, consistent=True)))
        if self.older is not None:
            for address in addresses:
                old = None if address in found or address.shard else await self.older.look(address)
                if old is not None:
                    found[address] = old
        return {address: found[address] for address in addresses if address in found}

    async def of_entity(self, namespace_id: str, entity_id: str) -> dict[BucketAddress, Bucket]:
        pk = schema.gsi3_pk_entity(namespace_id, entity_id)
        found = await self._indexed("GSI3", pk, "BUCKET#")
        if self.older is not None:
            found = {**await self.older.of_entity(namespace_id, entity_id), **found}
        return found

    async def of_resource(self, namespace_id: str, resource: str) -> dict[BucketAddress, Bucket]:
        pk = schema.gsi2_pk_resource(namespace_id, resource)
        found = await self._indexed("GSI2", pk, "BUCKET#")
        if self.older is not None:
            found = {**await self.older.of_resource(namespace_id, resource), **found}
        return found

    async def of_resource_after(
        self, namespace_id: str, resource: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        if self.older is not None:
            # Pages are cut at keys of today's shape, so old buckets come in one page with them.
            return await self.of_resource(namespace_id, resource), None
        pk = schema.gsi2_pk_resource(namespace_id, resource)
        low, high = cursor or "BUCKET#", "BUCKET$"
        query = Query(pk, low=low, high=high, index="GSI2", attributes=("PK", "SK", "GSI2SK"))
        entries, more = await read_page(self._table, query)
        kept = [entry for entry in entries if entry["GSI2SK"]["S"] != cursor]
        if more is not None and kept:
            # The page may end in the midst of the items of a bucket.
            cut = kept[-1]["GSI2SK"]["S"].rpartition("#")[0]
            kept = [entry for entry in kept if entry["GSI2SK"]["S"].rpartition("#")[0] != cut]
        items = await self._table.batch_get(map(key_of, kept), consistent=True)
        following = kept[-1]["GSI2SK"]["S"] if more is not None and kept else None
        return dict(sorted(readable(_addressed, items))), following

    async def of_namespace_after(
        self, namespace_id: str, cursor: str | None
    ) -> tuple[dict[BucketAddress, Bucket], str | None]:
        low, high = cursor or "BUCKET#", "BUCKET$"
        attributes = ("PK", "SK", "GSI4SK")
        query = Query(namespace_id, low=low, high=high, index="GSI4", attributes=attributes)
        entries, more = await read_page(self._table, query)
        kept = [entry for entry in entries if entry["GSI4SK"]["S"] != cursor]
        items = await self._table.batch_get(map(key_of, kept), consistent=True)
        following = kept[-1]["GSI4SK"]["S"] if more is not None and kept else None
        return dict(sorted(readable(_addressed, items))), following

    async def _indexed(self, index: str, pk: str, prefix: str) -> dict[BucketAddress, Bucket]:
        """Return the items of an index, which itself has only their keys."""
        entries = await read_pages(self._table, Query(pk, prefix, index=index))
        keys = [key_of(entry) for entry in entries if entry["SK"]["S"] == schema.sk_state()]
        items = await self._table.batch_get(keys, consistent=True)
        return dict(sorted(readable(_addressed, items)))


def _may_apply(write: Adjust, bucket: Bucket) -> bool:
    """Return whether a correction that was refused can apply to the item as it is."""
    is_in_force = write.generation in (None, bucket.generation)
    return is_in_force and write.operation >= bucket.fence


def _addressed(item: Item) -> tuple[BucketAddress, Bucket]:
    address = _address(item)
    return address, decode_bucket_item(address, item)


def _address(item: Item) -> BucketAddress:
    try:
        return address_of(item["PK"]["S"])
    except ValueError as error:
        raise StoredDataError(record_name(item), str(error)) from error


def _attributes(answer: dict[str, Any]) -> Item:
    """Return the item of an answer. One without it leaves the outcome unknown."""
    if "Attributes" not in answer:
        raise StorageUnavailable("UpdateItem was answered without the item", ambiguous=True)
    item: Item = answer["Attributes"]
    return item


def _outcome(address: BucketAddress, write: Write, item: Item | None) -> Outcome:
    """Return the outcome of a failed condition: done already, refused, or no item."""
    if not item:
        return ABSENT
    bucket = decode_bucket_item(address, item)
    return Granted(bucket) if write.operation in bucket.recent else Refused(bucket)


def _reasons(refusal: TransactionCanceled, count: int) -> list[Reason]:
    """Return a reason for each action. Without the check, a transaction that was canceled for
    another reason than a condition would count as granted."""
    found = refusal.reasons
    if len(found) == count and CONDITION_FAILED in {reason.code for reason in found}:
        return found
    unclear = f"DynamoDB does not say which condition failed: {refusal}"
    raise StorageUnavailable(unclear, refusal, retryable=False) from refusal


def _reason(address: BucketAddress, write: Write, reason: Reason) -> Outcome:
    """Return the outcome of one action of a canceled transaction."""
    if reason.code == CONDITION_FAILED:
        return _outcome(address, write, reason.item)
    # This action could have been carried out. DynamoDB does not show its item, and no caller asks.
    return Granted(UNSEEN)


def _action(table_name: str, address: BucketAddress, write: Write) -> dict[str, Any]:
    if isinstance(write, Create):
        return {"Put": creation(table_name, address, write)}
    return {"Update": dict(change(table_name, address, write))}
