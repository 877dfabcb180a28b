"""Checkpoints of the readers of the table's stream, kept in the table itself.

A checkpoint costs one write unit. It is dropped a week after its last write, when the stream has
long forgotten its shard. A checkpoint that is damaged counts as none, and is deleted: its shard is
read again, which changes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress

from ...core.exceptions import StoredDataError
from ...ports.stream import Checkpoint
from .expressions import Clause, Field, Term, request_fields
from .item_reader import ItemReader, decode_record
from .pages import Query, read_pages
from .schema import TTL_ATTRIBUTE, calculate_ttl, key, pk_stream, sk_stream_shard
from .table import Key, Table, key_of
from .wire.errors import ConditionFailed
from .wire.values import Item

logger = logging.getLogger("zae_limiter")

_OWNER, _LEASE = Field("owner"), Field("lease_ends_ms")
_RECORD, _WANTED = Field("record_id"), Field("wanted_by")
_TTL = Field(TTL_ATTRIBUTE)
_KEPT_S = 7 * 86_400
_RECORD_ID = re.compile("[0-9]{1,40}")
# No reader asks for a lease of more than ten minutes.
_LONGEST_LEASE_MS = 600_000
_MAY_LEASE = Clause(IF="(attribute_not_exists({0}) OR {0} = {a} OR {1} < {b})")


class DynamoCheckpoints:
    """The checkpoints of a table's streams, for readers that do the same work. Readers that shared
    a checkpoint and did not, would leave out what another one has passed."""

    def __init__(self, table: Table, work: str) -> None:
        self._table = table
        self._work = work

    async def read(self, shard_id: str) -> Checkpoint:
        item = await self._table.get(self._key(shard_id), consistent=True)
        return Checkpoint() if item is None else await self._sound(item)

    async def lease(self, shard_id: str, owner: str, until_ms: int) -> Checkpoint:
        now_ms = self._table.io.now_ms()
        may_lease = (_MAY_LEASE, (_OWNER, _LEASE), (owner, now_ms))
        terms = [may_lease, _OWNER.set(owner), _LEASE.set(until_ms), _WANTED.remove()]
        terms.append(self._expiry())
        try:
            return await self._sound(await self._update(shard_id, terms))
        except ConditionFailed as refusal:
            return await self._sound(refusal.item or {})

    async def save(self, shard_id: str, checkpoint: Checkpoint) -> Checkpoint | None:
        terms = [
            _OWNER.equals(checkpoint.owner),
            _LEASE.set(checkpoint.lease_ends_ms),
            self._expiry(),
        ]
        if checkpoint.record_id is not None:
            terms.append(_RECORD.set(checkpoint.record_id))
        try:
            return await self._sound(await self._update(shard_id, terms))
        except ConditionFailed:
            return None

    async def read_all(self) -> dict[str, Checkpoint]:
        found: dict[str, Checkpoint] = {}
        prefix = sk_stream_shard(self._work, "")
        for item in await read_pages(self._table, Query(pk_stream(), prefix)):
            with suppress(StoredDataError):
                found[item["SK"]["S"].removeprefix(prefix)] = self._decode(item)
        return found

    async def ask(self, shard_id: str, owner: str, asking: str) -> None:
        terms = [_OWNER.equals(owner), _WANTED.is_absent(), _WANTED.set(asking)]
        with suppress(ConditionFailed):
            await self._update(shard_id, terms)

    async def _update(self, shard_id: str, terms: Iterable[Term]) -> Item:
        """Write once or more: a write that is sent again finds its own owner and changes nothing
        more."""
        request = {
            "TableName": self._table.name,
            "Key": self._key(shard_id),
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            **request_fields(terms),
        }
        item: Item = (await self._table.repeatable("UpdateItem", request))["Attributes"]
        return item

    async def _sound(self, item: Item) -> Checkpoint:
        try:
            return self._decode(item)
        except StoredDataError as error:
            logger.warning("%s. The stream shard is read again from its oldest record on", error)
            await self._table.batch_delete([key_of(item)])
            return Checkpoint()

    def _decode(self, item: Item) -> Checkpoint:
        return decode_record(item, lambda fields: _checkpoint(fields, self._table.io.now_ms()))

    def _key(self, shard_id: str) -> Key:
        return key(pk_stream(), sk_stream_shard(self._work, shard_id))

    def _expiry(self) -> Term:
        return _TTL.set(calculate_ttl(self._table.io.now_ms(), _KEPT_S))


def _checkpoint(fields: ItemReader, now_ms: int) -> Checkpoint:
    record_id, lease_ends_ms = fields.maybe_text(_RECORD), fields.maybe_integer(_LEASE) or 0
    if record_id is not None and not _RECORD_ID.fullmatch(record_id):
        raise ValueError(f"{_RECORD} is {record_id[:50]!r}, not a number")
    if lease_ends_ms > now_ms + _LONGEST_LEASE_MS:
        raise ValueError(f"{_LEASE} is {lease_ends_ms}, too far ahead")
    owner, wanted_by = fields.maybe_text(_OWNER) or "", fields.maybe_text(_WANTED) or ""
    return Checkpoint(record_id, owner, lease_ends_ms, wanted_by)


_OF_ANY_WORK = Query(pk_stream(), sk_stream_shard("", "").removesuffix("#"), attributes=("SK",))


async def works_with_checkpoints(table: Table) -> list[str]:
    """Return the names of the works of which readers have left checkpoints. A record whose key
    names no work and no shard is none of theirs."""
    items = await read_pages(table, _OF_ANY_WORK)
    places = [item["SK"]["S"].split("#")[2:] for item in items]
    return sorted({work for work, *shard in places if work and shard})


async def has_checkpoints(table: Table) -> bool:
    """Whether any reader of the table's stream has left a checkpoint."""
    return bool(await read_pages(table, _OF_ANY_WORK, limit=1))
