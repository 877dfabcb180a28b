"""The model of one hot key, in small: what must hold whatever the figures are."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from bench.scale.events import START_US, Events, VirtualIo
from bench.scale.figures import figures, percentile
from bench.scale.fleet import USED, lost_per_acquire
from bench.scale.hot_key import FALLING, FULL, LIMIT, SHORT, Case, HotKey, Level, Run
from bench.scale.lanes import item_writes_per_s
from bench.scale.table import IN_REGION, PARTITION_WCU_PER_S, Allowance, Table

from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.limit import MILLI
from zae_limiter.testing import window_excess

ITEM, OTHER = BucketAddress("n", "e", "r"), BucketAddress("n", "e", "r", 1)


def tiny(level: Level, acquires_per_s: int, processes: int, seconds: float = 0.5) -> Case:
    return Case(level, acquires_per_s, processes, seconds, warm_s=0.5)


def model(level: Level, acquires_per_s: int, processes: int, seconds: float = 0.5) -> Run:
    return HotKey(tiny(level, acquires_per_s, processes, seconds), seed=3).run()


def test_a_seed_says_everything() -> None:
    case = tiny(FULL, 200, 3)
    first, again, other = (figures(HotKey(case, seed).run()) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize("level", [FALLING, FULL, SHORT], ids=lambda level: level.name)
@pytest.mark.parametrize("processes", [1, 4])
def test_the_bucket_lets_out_no_more_than_its_limit(level: Level, processes: int) -> None:
    run = model(level, 400, processes)
    limit = run.case.limit
    takings = [event for event in run.takings if event.limit_name == LIMIT]
    assert sum(event.amount_milli for event in takings) >= 100 * MILLI
    excess = window_excess(
        takings,
        capacity_milli=limit.capacity * MILLI,
        refill_amount_milli=limit.refill_amount * MILLI,
        refill_period_ms=limit.refill_period_seconds * 1000,
        skew_ms=run.oldest_ms,
    )
    assert excess <= 0


@pytest.mark.parametrize("level", [FALLING, FULL, SHORT], ids=lambda level: level.name)
def test_fifty_processes_at_one_key_are_all_answered(level: Level) -> None:
    """None of them fails, however they get into each other's way."""
    run = model(level, 1000, 50, seconds=1)
    assert run.answers.failed == 0
    if level is SHORT:
        assert run.shards == 1, "a bucket that is used up was split"
        assert run.answers.refused == pytest.approx(500, rel=0.2)


@pytest.mark.parametrize("processes", [4, 20])
def test_takings_from_a_bucket_that_is_used_up_are_not_in_each_other_s_way(processes: int) -> None:
    """A write is lost only where too little is there: for a refusal, or some of a flight."""
    run = model(SHORT, 1000, processes, seconds=1)
    assert run.tally.refused <= 1.1 * run.answers.refused


@pytest.mark.parametrize("processes", [1, 4, 20])
def test_no_item_is_written_more_than_it_bears(processes: int) -> None:
    run = model(FALLING, 2000, processes)
    most = PARTITION_WCU_PER_S * (1 + run.case.seconds)
    assert 0 < max(run.tally.spent.values()) <= most


def test_everyone_who_came_has_an_answer() -> None:
    answers = model(SHORT, 100, 1, seconds=4).answers
    came = len(answers.admitted_us) + answers.refused + answers.failed
    assert came == pytest.approx(400, abs=5 * 400**0.5)


def test_the_more_come_the_more_go_together() -> None:
    batches = [figures(model(FALLING, load, 2)).acquires_per_write for load in (100, 500, 2500)]
    assert batches == sorted(batches)
    assert batches[0] < 1.5
    assert batches[-1] > 5


def test_one_by_one_there_is_a_write_for_each() -> None:
    case = replace(tiny(FALLING, 150, 1), coalesce=False)
    assert figures(HotKey(case, 3).run()).acquires_per_write == pytest.approx(1, abs=0.05)


def test_waiting_for_company_saves_writes() -> None:
    case = tiny(FALLING, 1000, 4)
    at_once, later = (
        figures(HotKey(replace(case, linger_ms=ms), 3).run()).writes_per_s for ms in (0, 20)
    )
    assert later < at_once / 2


@pytest.mark.parametrize(("load", "processes"), [(100, 1), (500, 1), (500, 4), (2000, 3)])
def test_the_formula_says_what_the_model_shows(load: int, processes: int) -> None:
    shown = model(FALLING, load, processes, seconds=1.5)
    assert shown.shards == 1
    told = item_writes_per_s(load, processes, 1)
    assert figures(shown).writes_per_s == pytest.approx(told, rel=0.15)


@pytest.mark.parametrize("processes", [1, 4])
def test_writes_are_lost_at_a_full_bucket_as_the_formula_says(processes: int) -> None:
    tally = model(Level("quiet", USED, 60), 20, processes, seconds=60).tally
    assert tally.refused / tally.granted == pytest.approx(lost_per_acquire(processes), abs=0.05)


def test_an_item_bears_a_second_s_worth_at_once_and_no_more() -> None:
    allowance = Allowance(10)
    assert allowance.spend({ITEM: 10}, 0)
    assert not allowance.spend({ITEM: 1, OTHER: 1}, 0)
    assert allowance.spend({OTHER: 10}, 0)
    assert allowance.spend({ITEM: 1}, 100_000)
    assert not allowance.spend({ITEM: 1}, 100_000)
    assert not allowance.spend({ITEM: 11}, 10_000_000)


def test_calls_that_an_item_cannot_bear_are_sent_again_and_then_fail() -> None:
    events = Events()
    table = Table(events, Random(1), IN_REGION)
    seen: list[str] = []

    async def carry_out() -> None:
        seen.append("done")

    async def call() -> None:
        try:
            await table.write({ITEM: 1}, carry_out)
        except StorageUnavailable:
            seen.append("failed")

    calls = 3 * PARTITION_WCU_PER_S
    for _ in range(calls):
        events.spawn(call())
    events.run()
    assert len(seen) == calls
    assert seen.count("done") >= PARTITION_WCU_PER_S
    assert seen.count("failed") > 0
    assert table.tally.throttled > 3 * seen.count("failed")


def test_virtual_time_passes_only_while_someone_waits_for_it() -> None:
    events = Events()
    io = VirtualIo(events, Random(1), 1)

    async def nap(seconds: float) -> float:
        await io.sleep(seconds)
        return seconds

    async def all_naps() -> list[float | BaseException]:
        return await io.gather([nap(3), nap(1), nap(2)])

    task = events.spawn(all_naps())
    events.run()
    assert task.result == [3, 1, 2]
    assert events.now_us - START_US == 3_000_000


def test_a_signal_ends_a_wait_and_time_does_otherwise() -> None:
    events = Events()
    io = VirtualIo(events, Random(1), 1)
    signal, never = io.signal(), io.signal()

    async def wait() -> tuple[bool, bool, bool]:
        return await signal.wait(None), await signal.wait(1), await never.wait(5)

    async def wake() -> None:
        await io.sleep(2)
        signal.set()

    task = events.spawn(wait())
    events.spawn(wake())
    events.run()
    assert task.result == (True, True, False)
    assert events.now_us - START_US == 7_000_000


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([], 50) == 0
    assert percentile([7], 99) == 7
    assert percentile(list(range(1, 101)), 50) == 50
    assert percentile(list(range(1, 101)), 99) == 99
