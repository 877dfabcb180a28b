"""Usage snapshots in DynamoDB: added to by the reader of the table's stream, and read.

Pages are cut at positions: the key of a window, then the entity or resource that the query
leaves open. Of two windows the one that starts later has the greater key, and of those
that start together the shorter one, so that descending positions are newest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...core.exceptions import StorageUnavailable, StoredDataError, ValidationError
from ...core.models import UsageSnapshot, UsageSummary
from ...core.usage import UsageAddition, UsageTotals
from ...ports.repository_protocol import UsageQuery
from ..damage import readable
from .codec import decode_snapshot_item
from .contention import race
from .item_reader import record_name
from .pages import PAGE_ITEMS, Query, read_page, read_pages
from .schema import gsi2_pk_resource, gsi2_sk_usage, key, pk_entity, pk_stream, sk_usage
from .table import Table, key_of, key_text
from .usage_additions import counted_sequences, snapshot_key, snapshot_update
from .wire.errors import ConditionFailed, RequestInvalid
from .wire.values import Item

_POSITION = re.compile(r"\d{4}-\d\d(-\d\d(T\d\d:\d\d:\d\dZ)?)?(#[^#]{1,256})?", re.ASCII)
# The least number of characters that a window's key shares with the time at which it starts.
_KEY_CHARS = {"hourly": 20, "daily": 10, "monthly": 7, None: 7}
_ALL_OF_ENTITY = sk_usage("", "").removesuffix("#")
_OF_RESOURCE = gsi2_sk_usage("", "").removesuffix("#")
_AFTER_ALL = "~"
_MALFORMED = "ValidationException"
# A sort key that no record has.
_NOWHERE = "#"
# Sorts after the sign that ends the key of a window.
_AFTER_WINDOW = "$"


class _Found(NamedTuple):
    position: str
    snapshot: UsageSnapshot


class DynamoUsage:
    """Snapshots by entity, by resource, or both."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def read(
        self, namespace_id: str, query: UsageQuery, limit: int, cursor: str | None
    ) -> tuple[list[UsageSnapshot], str | None]:
        if cursor is not None and not _POSITION.fullmatch(cursor):
            raise ValidationError("next_key", cursor, "is not a key that a previous page returned")
        if query.resource is None:
            found = await self._of_all_resources(namespace_id, query, cursor)
        else:
            found = await self._of_resource(namespace_id, query, cursor, limit + 1)
        page = found[:limit]
        following = page[-1].position if len(found) > limit else None
        return [each.snapshot for each in page], following

    async def summary(self, namespace_id: str, query: UsageQuery) -> UsageSummary:
        totals = UsageTotals()
        if query.resource is None:
            found = await self._of_all_resources(namespace_id, query, None)
            totals.add(each.snapshot for each in found)
            return totals.summary()
        cursor: str | None = None
        while True:
            page, cursor = await self.read(namespace_id, query, PAGE_ITEMS - 2, cursor)
            totals.add(page)
            if cursor is None:
                return totals.summary()

    async def add(self, addition: UsageAddition) -> bool:
        """Add in one call, which may be sent again: what a snapshot has counted it refuses, and
        what others have counted meanwhile is left out of the next attempt."""
        rest, record = addition, " ".join(snapshot_key(addition))

        async def attempt() -> bool | None:
            nonlocal rest
            request = snapshot_update(self._table.name, rest)
            try:
                await self._table.repeatable("UpdateItem", request)
            except ConditionFailed as refusal:
                rest = addition.beyond(counted_sequences(refusal.item))
                return None if rest.parts else False
            except RequestInvalid as error:
                await self._rule_out_failure(error)
                # Text where a number is added to, or names and numbers beyond all bounds: sent
                # again and again, it would stop the stream.
                raise StoredDataError(record, str(error)) from error
            return True

        return await race(self._table, record, attempt)

    async def _rule_out_failure(self, refused: RequestInvalid) -> None:
        """Raise unless the refusal is about this snapshot alone: a table that refuses any request,
        or refuses in words that are not about its form, may count the addition later."""
        try:
            if refused.code == _MALFORMED:
                await self._table.get(key(pk_stream(), _NOWHERE))
                return
        except RequestInvalid as error:
            refused = error
        raise StorageUnavailable(f"DynamoDB did not count: {refused}", refused) from refused

    async def _of_all_resources(
        self, namespace_id: str, query: UsageQuery, cursor: str | None
    ) -> list[_Found]:
        """Return all snapshots of an entity. Their keys are ordered by resource, not by time."""
        partition = pk_entity(namespace_id, query.entity_id or "")
        items = await read_pages(self._table, Query(partition, _ALL_OF_ENTITY))
        found = _readable(items)
        return sorted(_wanted(found, query, cursor), key=_position, reverse=True)

    async def _of_resource(
        self, namespace_id: str, query: UsageQuery, cursor: str | None, enough: int
    ) -> list[_Found]:
        """Return the newest snapshots, at least `enough` of them if there are so many."""
        keys = _key_range(namespace_id, query, cursor)
        found: list[_Found] = []
        start: Item | None = None
        while keys.low <= keys.high and len(found) < enough:
            # One more than enough: the previous page ends with the first item of this one.
            items, start = await read_page(self._table, keys, start, enough + 1)
            found += _wanted(await self._read_found(items, query), query, cursor)
            if start is None:
                break
        return found

    async def _read_found(self, items: Sequence[Item], query: UsageQuery) -> list[_Found]:
        if query.entity_id is not None:
            return _readable(items)
        read = await self._table.batch_get(map(key_of, items))
        whole = {key_text(item): found.snapshot for item in read for found in _readable([item])}
        return [
            _Found(item["GSI2SK"]["S"].removeprefix(_OF_RESOURCE), whole[key_text(item)])
            for item in items
            if key_text(item) in whole
        ]


def _key_range(namespace_id: str, query: UsageQuery, cursor: str | None) -> Query:
    """Return the range of keys that may match. Snapshots before the start are filtered later."""
    resource = query.resource or ""
    start, end = query.start_time or "", query.end_time
    low = start[: _KEY_CHARS[query.window_type]]
    high = _AFTER_ALL if end is None else f"{end}{_AFTER_WINDOW}"
    if cursor is not None:
        high = min(high, cursor)
    if query.entity_id is not None:
        prefix, index = sk_usage(resource, ""), ""
        partition = pk_entity(namespace_id, query.entity_id)
    else:
        prefix, index = _OF_RESOURCE, "GSI2"
        partition = gsi2_pk_resource(namespace_id, resource)
    return Query(
        partition, low=f"{prefix}{low}", high=f"{prefix}{high}", index=index, newest_first=True
    )


def _wanted(found: Iterable[_Found], query: UsageQuery, cursor: str | None) -> list[_Found]:
    return [
        each
        for each in found
        if (cursor is None or each.position < cursor) and _matches(each.snapshot, query)
    ]


def _matches(snapshot: UsageSnapshot, query: UsageQuery) -> bool:
    start, end = query.start_time, query.end_time
    return (
        query.window_type in (None, snapshot.window_type)
        and (start is None or snapshot.window_start >= start)
        and (end is None or snapshot.window_start <= end)
    )


def _readable(items: Iterable[Item]) -> list[_Found]:
    """All that are not damaged."""
    return list(
        readable(lambda item: _Found(_position_of(item), decode_snapshot_item(item)), items)
    )


def _position_of(item: Item) -> str:
    """The position among the snapshots of an entity."""
    parts = item["SK"]["S"].split("#", 3)
    if len(parts) < 4:
        raise StoredDataError(record_name(item), "its key names no window")
    return f"{parts[3]}#{parts[2]}"


def _position(found: _Found) -> str:
    return found.position
