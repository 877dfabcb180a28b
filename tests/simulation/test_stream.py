"""Usage is counted once from a stream, in every order in which the stream may be delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from zae_limiter.core.bucket import Bucket
from zae_limiter.core.changes import BucketChange
from zae_limiter.core.usage import UsageAddition, UsageCounts, consumption
from zae_limiter.core.windows import HOUR_MS
from zae_limiter.flows.stream.aggregate import StreamResult, aggregate, in_order

from .campaign import Broken, run_stream_seed
from .stream_world import StreamWorld

SEEDS = 2000
CHUNK = 100
QUICK_SEEDS = 100
MOST_SEEDS = 300


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first < QUICK_SEEDS else pytest.mark.slow)
        for first in range(0, SEEDS, CHUNK)
    ],
)
def test_usage_is_counted_once_in_every_run(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_stream_seed(seed)


TROUBLES = ("redelivered", "failed", "bisected", "splits", "refills", "expired", "closed shards")


@pytest.mark.slow
def test_the_runs_with_a_stream_contain_every_kind_of_trouble() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = StreamWorld(seed).run()
        total += world.seen
        total["expired"] += sum(change.after is None for change in world.truth.stream)
        total["closed shards"] += sum(shard.parent is not None for shard in world.positions.shards)
        if all(total[name] >= 3 for name in TROUBLES):
            return
    raise AssertionError(f"too little of {[n for n in TROUBLES if total[n] < 3]}: {total}")


def count_all(addition: UsageAddition, counted: object) -> UsageAddition:
    """Forget what the snapshot has counted."""
    return addition


def skip_first(before: Bucket | None, after: Bucket) -> UsageCounts:
    """Do not count the write that makes an item."""
    return UsageCounts() if before is None else consumption(before, after)


def count_writes(before: Bucket | None, after: Bucket) -> UsageCounts:
    """Count one event for each write that consumes anything."""
    counts = consumption(before, after)
    return UsageCounts(counts.consumed_milli, int(any(counts.consumed_milli.values())))


def count_gone(before: Bucket | None, after: Bucket) -> UsageCounts:
    """Take each image for that of a new item."""
    return consumption(None, after)


def refunds_an_hour_early(changes: Iterable[BucketChange]) -> list[BucketChange]:
    """Count what is given back in the window before."""
    return [
        change._replace(at_ms=change.at_ms - HOUR_MS)
        if change.before and change.after and change.after.acquires < change.before.acquires
        else change
        for change in in_order(changes)
    ]


async def swallow(*args: Any) -> StreamResult:
    """Report no failure."""
    found = await aggregate(*args)
    return StreamResult(processed=found.processed)


def time_of_refill(world: StreamWorld, change: BucketChange) -> int:
    """Take the refill time for that of the write."""
    last = change.after or change.before
    assert last is not None
    return world.start_ms + world.stretch * (last.refilled_at_ms - world.start_ms)


FLOW = "zae_limiter.flows.stream.aggregate"
MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "the sequence is not checked": (f"{UsageAddition.__module__}.UsageAddition.beyond", count_all),
    "the first write of an item is not counted": (f"{FLOW}.consumption", skip_first),
    "events are writes, not acquires": (f"{FLOW}.consumption", count_writes),
    "a write counts what the item consumed before": (f"{FLOW}.consumption", count_gone),
    "refunds count in another window": (f"{FLOW}.in_order", refunds_an_hour_early),
    "a failure is not reported": ("tests.simulation.stream_world.aggregate", swallow),
}


@pytest.mark.parametrize(("target", "mutant"), MUTANTS.values(), ids=MUTANTS)
def test_the_simulation_detects_wrong_counting(
    target: str, mutant: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, mutant)
    assert first_broken() is not None


def test_the_simulation_detects_windows_by_refill_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def records(world: StreamWorld, shard: Any) -> list[BucketChange]:
        found = world.positions.records(shard)
        return [change._replace(at_ms=time_of_refill(world, change)) for change in found]

    monkeypatch.setattr(StreamWorld, "_records", records)
    assert first_broken() is not None


def first_broken() -> int | None:
    """Return the first seed that shows a wrong count."""
    for seed in range(MOST_SEEDS):
        try:
            run_stream_seed(seed)
        except Broken:
            return seed
    return None
