"""A table's old records are moved to today's places, in two passes.

1. Entities, limits and settings. No client is let in before they are all in place.
2. Buckets, usage and audit events, while clients are at work.

A record is moved in one transaction, or written again before it is deleted where that does no harm.
So a pass that was interrupted is repeated: it finds what is left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ....core.audit import SYSTEM_AUDIT_ID, AuditAction, AuditEvent, resource_audit_id, ulid
from ....core.bucket import BucketAddress
from ....core.exceptions import StoredDataError
from ....core.hierarchy import ConfigSlot
from ....core.models import LimiterConfig
from ....core.windows import iso_ms, parse_iso, window_key
from ..audit import DEFAULT_RETENTION_DAYS, Recorder
from ..codec import decode_snapshot_item, encode_entity_item, encode_event_item
from ..config_records import ConfigKey
from ..configs import DynamoConfigs
from ..contention import won
from ..expressions import IS_NEW, PK, Field, Term
from ..pages import Query, read_pages
from ..schema import (
    TTL_ATTRIBUTE,
    calculate_ttl,
    gsi2_pk_resource,
    gsi2_sk_usage,
    gsi4_sk_usage,
    key,
    pk_entity,
    sk_meta,
    sk_usage,
)
from ..table import Table, key_of, key_text
from ..wire.values import Item, from_attribute
from .old_buckets import OldBuckets, old_resource
from .records import (
    AUDIT_SK,
    USAGE_SK,
    OldKey,
    config_of,
    entity_of,
    event_of,
    flattened,
    merged,
    old_key,
    slot_of,
)

_AT_ONCE = 8
# A transaction takes 100 actions; small ones lose less when a client is faster.
_ACTIONS_TOGETHER = 25
_PAGE_ITEMS = 500
_MOST_PROBLEMS = 100
_DAY_S = 86_400
# Sort keys of entities, limits, settings and registries lie between these; no others do.
_FIRST_RECORD, _LAST_RECORD = "#CONFIG", "#RESOURCES"
_MOVER = "migration"
OldRecord = tuple[OldKey, Item]


@dataclass(slots=True)
class MoveTally:
    """A tally counts what a pass has read and moved, by kind, and the records that it could not
    read."""

    scanned: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    unreadable: int = 0

    def complain(self, error: StoredDataError) -> None:
        """Count a record that stays where it is."""
        self.unreadable += 1
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(str(error))


ReportMove = Callable[[MoveTally], None]


class Mover:
    """A mover moves the old records of one table. A dry run counts them and changes nothing."""

    def __init__(self, table: Table, first_id: str, *, dry_run: bool, report: ReportMove) -> None:
        self.tally = MoveTally()
        self._table = table
        self._first_id = first_id
        self._dry_run = dry_run
        self._report = report
        self._configs = DynamoConfigs(table, Recorder(table))
        self._buckets = OldBuckets(table, first_id)
        self._damaged_slots: set[tuple[str, ConfigSlot]] = set()

    async def move_records(self) -> MoveTally:
        """Move entities, limits and settings."""
        later: set[str] = set()
        done: set[str] = set()

        async def work(page: list[OldRecord]) -> None:
            wanted = {
                item["PK"]["S"]: found for found, item in page if _is_record(found, item["SK"]["S"])
            }
            # A resource's own defaults count for more than the system's for that resource.
            later.update(pk for pk, found in wanted.items() if found.kind == "SYSTEM")
            fresh = wanted.keys() - later - done
            done.update(fresh)
            await self._all(self._move_partition(pk) for pk in sorted(fresh))

        await self._scan(work)
        await self._all(self._move_partition(pk) for pk in sorted(later))
        return self.tally

    async def move_the_rest(self) -> MoveTally:
        """Move buckets, usage and audit events."""

        async def work(page: list[OldRecord]) -> None:
            await self._move_buckets(page)
            await self._all(
                self._move_usage(found, item)
                for found, item in page
                if found.sk.startswith(USAGE_SK)
            )
            await self._all(
                self._move_event(found, item)
                for found, item in page
                if found.sk.startswith(AUDIT_SK)
            )

        await self._scan(work)
        return self.tally

    async def _scan(self, work: Callable[[list[OldRecord]], Awaitable[None]]) -> None:
        """Read the whole table, and hand on the old records of each page."""
        request: dict[str, Any] = {"TableName": self._table.name, "ConsistentRead": True}
        while True:
            answer = await self._table.repeatable("Scan", {**request, "Limit": _PAGE_ITEMS})
            self.tally.scanned += len(answer["Items"])
            keyed = ((old_key(item), item) for item in answer["Items"])
            await work([(found, item) for found, item in keyed if found is not None])
            self._report(self.tally)
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def _all(self, moves: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Carry out moves, some at once. A record that cannot be read stays; other failures are
        raised when all that had begun are over."""
        waiting = list(moves)
        for start in range(0, len(waiting), _AT_ONCE):
            outcomes = await self._table.io.gather(waiting[start : start + _AT_ONCE])
            for outcome in outcomes:
                if isinstance(outcome, StoredDataError):
                    self.tally.complain(outcome)
            failures = [o for o in outcomes if isinstance(o, BaseException)]
            raised = next((o for o in failures if not isinstance(o, StoredDataError)), None)
            if raised is not None:
                for unbegun in waiting[start + _AT_ONCE :]:
                    unbegun.close()
                raise raised

    async def _move_partition(self, pk: str) -> None:
        """Move the entity, limits and settings of one partition."""
        items = await read_pages(self._table, Query(pk, low=_FIRST_RECORD, high=_LAST_RECORD))
        slots: dict[tuple[str, ConfigSlot], list[Item]] = defaultdict(list)
        for item in items:
            found = old_key(item)
            if found is None:
                continue
            if found.sk == sk_meta():
                await self._isolated(self._move_entity(found, item))
            elif found.is_config:
                slots[self._namespace(found), slot_of(found)[0]].append(item)
            elif found.is_registry:
                await self._drop(item)
        for (namespace_id, slot), old in slots.items():
            await self._isolated(self._move_config(namespace_id, slot, old))

    async def _isolated(self, move: Awaitable[None]) -> None:
        """Carry out one move of several. A record that cannot be read keeps no other back."""
        try:
            await move
        except StoredDataError as error:
            self.tally.complain(error)

    async def _move_entity(self, found: OldKey, item: Item) -> None:
        moved = encode_entity_item(self._namespace(found), entity_of(item))
        await self._replace("entities", item, moved)

    async def _move_config(self, namespace_id: str, slot: ConfigSlot, old: list[Item]) -> None:
        """Write what the records of one slot say together, then delete them. If one cannot be
        read, all of them stay."""
        # Records of one limit come first: a record of all limits is newer.
        told = sorted(((slot_of(_key(item))[1], item) for item in old), key=lambda t: t[0] is None)
        configs = list(self._readable_configs(told))
        if len(configs) < len(old):
            self._damaged_slots.add((namespace_id, slot))
        if (namespace_id, slot) in self._damaged_slots:
            # Otherwise the system's limits for a resource would be taken for newer than the
            # resource's own, once those are mended.
            return
        config = merged(configs)
        self.tally.moved["limits and settings"] += len(old)
        if self._dry_run:
            return
        target = ConfigKey(namespace_id, slot).key
        stored = (await self._configs.read(namespace_id, [slot])).configs.get(slot)
        # All records of a slot are moved together, so limits in today's place are newer.
        is_done = stored is not None and stored.limits is not None
        if not is_done and config != LimiterConfig():
            await self._configs.write(namespace_id, slot, config, self._event(slot, config))
        for item in old:
            if key_text(item) == key_text(target):
                await self._table.update(target, [Field("data").remove()])
        doomed = [key_of(item) for item in old if key_text(item) != key_text(target)]
        await self._table.batch_delete(doomed)

    def _readable_configs(self, told: Iterable[tuple[str | None, Item]]) -> Iterator[LimiterConfig]:
        for limit_name, item in told:
            try:
                yield config_of(item, limit_name)
            except StoredDataError as error:
                self.tally.complain(error)

    def _event(self, slot: ConfigSlot, config: LimiterConfig) -> AuditEvent:
        io = self._table.io
        audit_id = SYSTEM_AUDIT_ID if slot.resource is None else resource_audit_id(slot.resource)
        now_ms = io.now_ms()
        return AuditEvent(
            ulid(now_ms, io.entropy()),
            iso_ms(now_ms),
            AuditAction.LIMITS_SET,
            slot.entity_id or audit_id,
            _MOVER,
            slot.resource,
            config.to_dict(),
        )

    async def _move_buckets(self, page: list[OldRecord]) -> None:
        """Move the buckets of a page, several in each transaction. The items of a partition at
        either end may go on beyond the page, so their buckets are read once more."""
        old: dict[BucketAddress, list[Item]] = defaultdict(list)
        for found, item in page:
            if found.is_bucket:
                old[self._address(found)].append(item)
        ends = {item["PK"]["S"] for _, item in (*page[:1], *page[-1:])}
        whole = {a: items for a, items in old.items() if ends.isdisjoint(map(_partition, items))}
        await self._all(self._move_together(dict(some)) for some in _portions(whole))
        await self._all(self._move_bucket(address) for address in sorted(old.keys() - whole.keys()))

    async def _move_together(self, old: dict[BucketAddress, list[Item]]) -> None:
        """Move buckets in one transaction, else one by one: a client may have moved some, and one
        that cannot be read keeps no other from being moved."""
        left = set(old)
        if not self._dry_run:
            whole = {a: i for a, i in old.items() if await self._buckets.is_whole(a, i)}
            with suppress(StoredDataError):
                if whole and await self._buckets.adopt_together(whole):
                    self.tally.moved["buckets"] += len(whole)
                    left -= whole.keys()
        for address in sorted(left):
            try:
                await self._move_bucket(address)
            except StoredDataError as error:
                self.tally.complain(error)

    async def _move_bucket(self, address: BucketAddress) -> None:
        if self._dry_run:
            await self._buckets.look(address)
        else:
            await self._buckets.adopt(address)
        self.tally.moved["buckets"] += 1

    async def _move_event(self, found: OldKey, item: Item) -> None:
        later_s = calculate_ttl(self._table.io.now_ms(), DEFAULT_RETENTION_DAYS * _DAY_S)
        ttl = item.get(TTL_ATTRIBUTE)
        expires_at_s = later_s if ttl is None else from_attribute(ttl)
        moved = encode_event_item(self._namespace(found), event_of(item), expires_at_s)
        await self._replace("audit events", item, moved)

    async def _move_usage(self, found: OldKey, item: Item) -> None:
        """Add an old snapshot to today's, which may have begun already."""
        self.tally.moved["usage snapshots"] += 1
        place, terms = _added(self._namespace(found), flattened(item))
        if not self._dry_run:
            adding = self._table.updating(place, terms)
            await won(self._table, [adding, self._table.deleting(key_of(item), [PK.exists()])])

    async def _replace(self, kind: str, old: Item, new: Item) -> None:
        """Put the new record in the old one's stead. A record that is there already stays."""
        self.tally.moved[kind] += 1
        if self._dry_run:
            return
        if key_text(old) == key_text(new):
            await self._table.put(new)
        elif not await won(
            self._table,
            [self._table.putting(new, IS_NEW), self._table.deleting(key_of(old))],
        ):
            await self._table.delete(key_of(old))

    async def _drop(self, item: Item) -> None:
        self.tally.moved["registries"] += 1
        if not self._dry_run:
            await self._table.delete(key_of(item))

    def _namespace(self, found: OldKey) -> str:
        return found.namespace_id or self._first_id

    def _address(self, found: OldKey) -> BucketAddress:
        return BucketAddress(self._namespace(found), found.name, old_resource(found.sk))


def _partition(item: Item) -> str:
    pk: str = item["PK"]["S"]
    return pk


def _portions(
    old: Mapping[BucketAddress, list[Item]],
) -> Iterator[list[tuple[BucketAddress, list[Item]]]]:
    """Divide buckets into as many as one transaction takes."""
    portion: list[tuple[BucketAddress, list[Item]]] = []
    actions = 0
    for address, items in old.items():
        if portion and actions + 1 + len(items) > _ACTIONS_TOGETHER:
            yield portion
            portion, actions = [], 0
        portion.append((address, items))
        actions += 1 + len(items)
    if portion:
        yield portion


def _is_record(found: OldKey, sk: str) -> bool:
    return _FIRST_RECORD <= sk <= _LAST_RECORD and found.kind != "AUDIT"


def _key(item: Item) -> OldKey:
    found = old_key(item)
    assert found is not None
    return found


def _added(namespace_id: str, item: Item) -> tuple[dict[str, Any], Iterator[Term]]:
    """Return the key of today's snapshot, and the terms that add an old one to it."""
    snapshot = decode_snapshot_item(item)
    window = window_key(snapshot.window_type, parse_iso(snapshot.window_start))  # type: ignore[arg-type]
    entity_id, resource = snapshot.entity_id, snapshot.resource
    fixed = {
        "entity_id": entity_id,
        "resource": resource,
        "window": snapshot.window_type,
        "window_start": snapshot.window_start,
        "GSI2PK": gsi2_pk_resource(namespace_id, resource),
        "GSI2SK": gsi2_sk_usage(window, entity_id),
        "GSI4PK": namespace_id,
        "GSI4SK": gsi4_sk_usage(entity_id, resource, window),
    }
    if TTL_ATTRIBUTE in item:
        fixed[TTL_ATTRIBUTE] = from_attribute(item[TTL_ATTRIBUTE])
    counted = {"total_events": snapshot.total_events, **snapshot.counters}

    def terms() -> Iterator[Term]:
        yield from (Field(name).set_if_absent(value) for name, value in fixed.items())
        yield from (Field(name).add(amount) for name, amount in counted.items() if amount)

    return key(pk_entity(namespace_id, entity_id), sk_usage(resource, window)), terms()
