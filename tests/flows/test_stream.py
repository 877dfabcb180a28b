"""The reader of a stream: additions to snapshots, refills and splits, planned from changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.sharded import Bench, take
from zae_limiter import Limit
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress, full_bucket, refill, set_back
from zae_limiter.core.bucket import take_tokens as taken
from zae_limiter.core.changes import BucketChange, ItemActivity, activities
from zae_limiter.core.exceptions import StorageUnavailable, StoredDataError
from zae_limiter.core.limit import MILLI, LimitSet
from zae_limiter.core.shards import sums_to_one
from zae_limiter.core.usage import UsageAddition, UsageCounts
from zae_limiter.core.validation import WCU
from zae_limiter.core.writes import Create
from zae_limiter.flows.scope import Scope
from zae_limiter.flows.shards.items import split_shard
from zae_limiter.flows.stream.aggregate import (
    StreamResult,
    StreamSettings,
    aggregate,
    in_order,
    plan_usage,
)
from zae_limiter.flows.stream.refills import plan_refill
from zae_limiter.flows.stream.splits import is_written_often, plan_splits
from zae_limiter.ports.repository_protocol import UsageQuery
from zae_limiter.runtime.blocking import BlockingIo, run
from zae_limiter.testing import ManualClock

HOME = BucketAddress("ns", "key", "gpt-4")
LIMITS = LimitSet.of([Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6000)])
FULL = full_bucket(LIMITS, 0, metered=True)
NOON_MS = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp() * 1000)


def used(bucket: Bucket, acquires: int = 1, **tokens: int) -> Bucket:
    milli = {name: amount * MILLI for name, amount in tokens.items()}
    return taken(bucket, milli, acquires)


def change(
    number: int,
    before: Bucket | None,
    after: Bucket | None,
    at_ms: int = NOON_MS,
    address: BucketAddress = HOME,
) -> BucketChange:
    return BucketChange(address, f"label/{number:040}", at_ms, before, after, str(number))


ONE = used(FULL, rpm=1, tpm=100)
THREE = used(ONE, 2, rpm=2)


class TestPlan:
    def test_one_addition_for_each_bucket_and_window_has_all_parts_in_order(self) -> None:
        sibling = HOME._replace(shard=1)
        changes = [
            change(9, ONE, THREE),
            change(1, None, ONE),
            change(5, None, ONE, address=sibling),
        ]
        hourly, daily = plan_usage(in_order(changes), ("hourly", "daily"))
        assert (hourly.window, daily.window) == ("hourly", "daily")
        assert (hourly.namespace_id, hourly.entity_id, hourly.resource) == HOME[:3]
        assert hourly.start == datetime(2024, 5, 1, 12, tzinfo=UTC)
        assert daily.start == datetime(2024, 5, 1, tzinfo=UTC)
        assert hourly.parts == daily.parts
        assert [part.sequence[-1] for part in hourly.parts[0]] == ["1", "9"]
        assert hourly.total() == UsageCounts({"rpm": 4000, "tpm": 200_000}, 4)

    def test_a_new_item_counts_all_that_it_has_consumed(self) -> None:
        (addition,) = plan_usage([change(1, None, THREE)], ("hourly",))
        assert addition.total() == UsageCounts({"rpm": 3000, "tpm": 100_000}, 3)

    def test_an_item_that_went_counts_nothing(self) -> None:
        assert plan_usage([change(1, THREE, None), change(2, None, None)]) == []

    def test_writes_that_consume_nothing_are_left_out(self) -> None:
        refilled = refill(ONE, NOON_MS)
        metered = taken(refilled, {WCU: 1000}, 0)
        assert plan_usage([change(1, ONE, refilled), change(2, refilled, metered)]) == []

    def test_changes_that_come_to_nothing_together_are_added(self) -> None:
        (addition,) = plan_usage([change(1, FULL, ONE), change(2, ONE, FULL)], ("hourly",))
        assert not addition.total()
        assert addition.last_sequences() == {0: f"label/{2:040}"}

    def test_windows_are_those_of_the_time_of_the_write_and_not_of_the_refill(self) -> None:
        hour_ms = 3_600_000
        changes = [change(1, FULL, ONE, NOON_MS - 1), change(2, ONE, FULL, NOON_MS + hour_ms)]
        starts = {
            addition.start.hour: addition.total().consumed_milli["rpm"]
            for addition in plan_usage(changes, ("hourly",))
        }
        assert starts == {11: 1000, 13: -1000}

    def test_snapshots_are_kept_for_days_after_the_end_of_their_window(self) -> None:
        for addition in plan_usage([change(1, FULL, ONE)], retention_days=1):
            end = {"hourly": (1, 13), "daily": (2, 0), "monthly": (32, 0)}[addition.window]
            day, hour = end
            wanted = datetime(2024, 5, 1, hour, tzinfo=UTC).timestamp() + day * 86_400
            assert addition.expires_at_s == wanted

    def test_a_change_that_is_delivered_twice_in_a_batch_counts_once(self) -> None:
        (addition,) = plan_usage(in_order([change(1, None, ONE)] * 2), ("hourly",))
        assert addition.total() == UsageCounts({"rpm": 1000, "tpm": 100_000}, 1)


class ShakyUsage:
    """Snapshots that fail for some entities."""

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        self.usage = MemoryStore().usage
        self.read = self.usage.read
        self.failures = failures

    async def add(self, addition: UsageAddition) -> bool:
        if addition.entity_id in self.failures:
            raise self.failures[addition.entity_id]
        return await self.usage.add(addition)


def scope() -> Scope:
    return Scope(MemoryStore(), BlockingIo(ManualClock()), "")


def changes_of(*entity_ids: str) -> list[BucketChange]:
    return [
        change(number, None, ONE, address=HOME._replace(entity_id=entity_id))
        for number, entity_id in enumerate(entity_ids)
    ]


class TestAggregate:
    HOURLY = StreamSettings(("hourly",))

    def aggregate(self, usage: Any, changes: list[BucketChange]) -> StreamResult:
        return run(aggregate(scope(), usage, changes, self.HOURLY))

    def test_the_result_tells_what_was_done(self) -> None:
        usage = MemoryStore().usage
        changes = changes_of(*(f"key-{n}" for n in range(50)))
        assert self.aggregate(usage, changes) == StreamResult(50, 50)
        assert self.aggregate(usage, changes) == StreamResult(50)
        assert self.aggregate(usage, []) == StreamResult()

    def test_a_failure_is_reported_by_record_and_holds_back_nothing_else(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        usage = ShakyUsage({"b": StorageUnavailable("gone", ambiguous=True)})
        with caplog.at_level(logging.ERROR, "zae_limiter"):
            found = self.aggregate(usage, [*changes_of("a", "b", "c"), change(9, FULL, ONE)])
        assert found == StreamResult(4, 3, failed=frozenset({"1"}))
        assert "Usage was not counted: gone" in caplog.text
        usage.failures = {}
        assert self.aggregate(usage, changes_of("a", "b", "c")) == StreamResult(3, 1)

    def test_only_records_that_count_in_the_failed_snapshot_are_reported(self) -> None:
        usage = ShakyUsage({"key": StorageUnavailable("gone")})
        refilled = refill(ONE, NOON_MS)
        batch = [change(1, None, ONE), change(2, ONE, refilled), change(3, refilled, None)]
        assert self.aggregate(usage, batch).failed == {"1"}

    def test_a_damaged_snapshot_is_passed_over(self) -> None:
        usage = ShakyUsage({"b": StoredDataError("snapshot", "is damaged")})
        found = self.aggregate(usage, changes_of("a", "b", "c"))
        assert found == StreamResult(3, 2, skipped=1)

    def test_a_bug_surfaces(self) -> None:
        with pytest.raises(KeyError):
            self.aggregate(ShakyUsage({"b": KeyError("b")}), changes_of("a", "b"))

    def test_namespaces_do_not_meet(self) -> None:
        store = MemoryStore()
        addresses = [HOME._replace(namespace_id=ns) for ns in ("n1", "n2")]
        batch = [change(1, None, ONE, address=address) for address in addresses]
        self.aggregate(store.usage, batch)
        for ns in ("n1", "n2"):
            found, _ = run(store.usage.read(ns, UsageQuery("key"), 10, None))
            assert [snapshot.total_events for snapshot in found] == [1]


class TestActivity:
    def test_has_the_last_image_and_the_consumption_of_all_writes(self) -> None:
        batch = [change(1, FULL, ONE), change(2, ONE, THREE, NOON_MS + 5)]
        (activity,) = activities(batch).values()
        wanted = UsageCounts({"rpm": 3000, "tpm": 100_000}, 3)
        assert activity == ItemActivity(THREE, NOON_MS + 5, wanted)

    def test_an_item_that_went_has_none_and_a_new_one_begins_anew(self) -> None:
        assert activities([change(1, FULL, ONE), change(2, ONE, None)]) == {}
        batch = [change(1, FULL, THREE), change(2, THREE, None), change(3, None, ONE)]
        assert activities(batch)[HOME].counts.events == 1


class TestRefill:
    EMPTY = taken(FULL, {"rpm": 60 * MILLI, WCU: 10_000}, 60)

    def activity(self, image: Bucket, **consumed: int) -> ItemActivity:
        counts = UsageCounts({name: n * MILLI for name, n in consumed.items()}, 1)
        return ItemActivity(image, 0, counts)

    def test_credits_all_limits_and_pays_for_itself(self) -> None:
        write = plan_refill(self.activity(self.EMPTY, rpm=60), "op", 10_000)
        assert write is not None
        assert write.before == self.EMPTY
        refilled = refill(self.EMPTY, 10_000)
        assert write.after == taken(refilled, {WCU: 1250}, 0)
        assert write.after.cells["rpm"].tokens_milli == 10 * MILLI

    @pytest.mark.parametrize(
        ("image", "consumed", "now_ms", "why"),
        [
            (EMPTY, {"rpm": 10}, 10_000, "holds as much as was consumed after the refill"),
            (EMPTY, {"rpm": 60}, 0, "gains nothing"),
            (EMPTY, {"rpm": 60}, -5000, "was refilled later than now"),
            (EMPTY, {"gone": 60}, 10_000, "lost the limit"),
            (FULL, {"rpm": 61}, 10_000, "is full"),
            (EMPTY, {}, 10_000, "consumed nothing"),
            (set_back(EMPTY, -9000), {"rpm": 60}, 10_000, "was set back"),
        ],
        ids=str,
    )
    def test_leaves_an_item_alone_that_does_not_need_it(
        self, image: Bucket, consumed: dict[str, int], now_ms: int, why: str
    ) -> None:
        assert plan_refill(self.activity(image, **consumed), "op", now_ms) is None, why

    def test_an_item_that_was_refilled_meanwhile_stays_as_it_is(self) -> None:
        clock = ManualClock()
        store, io = MemoryStore(), BlockingIo(clock)
        empty = self.EMPTY._replace(refilled_at_ms=io.now_ms())
        run(store.buckets.write(HOME, Create("op", io.now_ms(), empty)))
        clock.advance(5)
        here = Scope(store, io, "ns")
        batch = [change(1, FULL, empty)]
        settings = replace(TestAggregate.HOURLY, refills=True)
        written = [run(aggregate(here, MemoryStore().usage, batch, settings)) for _ in range(2)]
        assert [result.refills_written for result in written] == [1, 0]
        (stored,) = run(store.buckets.read([HOME])).values()
        assert stored.cells["rpm"].tokens_milli == 5 * MILLI

    def test_an_item_that_cannot_be_refilled_fails_no_record(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = ManualClock()
        store, io = MemoryStore(), BlockingIo(clock)
        empty = self.EMPTY._replace(refilled_at_ms=io.now_ms())
        clock.advance(5)

        async def fail(*_: object) -> None:
            raise ArithmeticError("39 digits")

        monkeypatch.setattr(store.buckets, "write", fail)
        settings = replace(TestAggregate.HOURLY, refills=True)
        batch = [change(1, FULL, empty)]
        found = run(aggregate(Scope(store, io, "ns"), MemoryStore().usage, batch, settings))
        assert (found.refills_written, found.failed) == (0, frozenset())
        assert "was not refilled" in caplog.text


class TestSplits:
    def written(self, times: int, at_ms: int = 0, **tokens: int) -> ItemActivity:
        spent = {WCU: times * 1250, **{name: n * MILLI for name, n in tokens.items()}}
        return ItemActivity(taken(FULL, spent, times), at_ms, UsageCounts({"rpm": 1}, times))

    def test_an_item_is_split_at_four_fifths_of_its_allowance(self) -> None:
        assert not is_written_often(self.written(639))
        assert is_written_often(self.written(640))

    def test_the_allowance_that_came_back_since_counts(self) -> None:
        assert is_written_often(self.written(650, at_ms=5))
        assert not is_written_often(self.written(650, at_ms=500))

    def test_an_item_that_holds_next_to_nothing_is_not_split(self) -> None:
        assert not is_written_often(self.written(700, rpm=60))

    def test_an_item_without_an_allowance_is_not_split(self) -> None:
        unmetered = ItemActivity(used(full_bucket(LIMITS, 0), rpm=1), 0, UsageCounts())
        assert not is_written_often(unmetered)

    def test_the_other_items_follow_the_first(self) -> None:
        twice = ONE._replace(shard_count=2)
        assert plan_splits([change(1, ONE, twice)], {}) == {HOME: 2}
        other = HOME._replace(shard=1)
        second, split = twice._replace(shard=1), twice._replace(shard=1, shard_count=4)
        assert plan_splits([change(1, second, split, address=other)], {}) == {}
        assert plan_splits([change(1, None, twice), change(2, twice, None)], {}) == {}

    def test_items_that_were_merged_again_in_the_same_batch_do_not_follow(self) -> None:
        twice, later = ONE._replace(shard_count=2), ONE._replace(shard_count=4)
        merged = [change(1, ONE, twice), change(2, twice, ONE)]
        assert plan_splits(merged, {}) == {}
        assert plan_splits([*merged, change(3, twice, later)], {}) == {HOME: 4}


class TestSplitBench:
    """With real items in a store."""

    def changes(self, bench: Bench, before: Mapping[BucketAddress, Bucket]) -> list[BucketChange]:
        now_ms = bench.clock.now_ms()
        return [
            change(number, before.get(address), bucket, now_ms, address)
            for number, (address, bucket) in enumerate(sorted(bench.items.items()))
        ]

    def aggregate(self, bench: Bench, changes: list[BucketChange]) -> int:
        here = bench.client().repository.scope
        return run(aggregate(here, MemoryStore().usage, changes)).splits

    def test_a_busy_item_is_split_before_clients_have_to(self) -> None:
        bench = Bench()
        for _ in range(650):
            assert take(bench.limiter, rpm=1)
        held_milli = bench.total("rpm")
        assert len(bench.shards()) == 1
        assert self.aggregate(bench, self.changes(bench, {})) == 1
        assert [bucket.shard_count for bucket in bench.shards()] == [2, 2]
        assert bench.total("rpm") == held_milli
        assert bench.consumed("rpm") == 650 * MILLI

    def test_all_items_come_to_the_count_of_the_first(self) -> None:
        bench = Bench()
        assert take(bench.limiter, rpm=1)
        bench.split_to(2)
        before = dict(bench.items)
        assert run(split_shard(bench.repository.scope, bench.home, bench.items[bench.home]))
        assert [bucket.shard_count for bucket in bench.shards()] == [4, 2, 4]
        held_milli = bench.total("rpm")
        assert self.aggregate(bench, self.changes(bench, before)) == 1
        assert [bucket.shard_count for bucket in bench.shards()] == [4] * 4
        assert sums_to_one(bucket.shard_count for bucket in bench.shards())
        assert bench.total("rpm") == held_milli

    def test_a_busy_second_item_has_the_first_split_first(self) -> None:
        bench = Bench()
        assert take(bench.limiter, rpm=1)
        bench.split_to(2)
        second = bench.home._replace(shard=1)
        busy = taken(bench.items[second], {WCU: 900_000, "rpm": 1000}, 1)
        bench.items[second] = busy
        batch = [change(1, None, busy, bench.clock.now_ms(), second)]
        assert self.aggregate(bench, batch) == 2
        assert [bucket.shard_count for bucket in bench.shards()] == [4] * 4

    def test_changes_of_long_ago_split_and_refill_nothing(self) -> None:
        bench = Bench()
        for _ in range(650):
            assert take(bench.limiter, rpm=1)
        busy = self.changes(bench, {})
        bench.clock.advance(3600)
        here, settings = bench.client().repository.scope, StreamSettings(refills=True)
        before = dict(bench.items)
        found = run(aggregate(here, MemoryStore().usage, busy, settings))
        assert (found.splits, found.refills_written, found.snapshots_updated) == (0, 0, 3)
        assert bench.items == before

    @pytest.mark.parametrize("error", [StorageUnavailable("gone"), ArithmeticError("39 digits")])
    def test_an_item_that_cannot_be_split_fails_no_record(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = Bench()
        for _ in range(650):
            assert take(bench.limiter, rpm=1)

        async def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(bench.store.buckets, "read", fail)
        here = bench.client().repository.scope
        found = run(aggregate(here, MemoryStore().usage, self.changes(bench, {})))
        assert (found.splits, found.failed) == (0, frozenset())
        assert "was not split" in caplog.text
