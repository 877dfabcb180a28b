from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.strategies import limit_sets, quick, untimed
from zae_limiter.core.bucket import Bucket, full_bucket, refill, take_tokens, time_to_gain_ms
from zae_limiter.core.judge import NEVER, judge, judge_shards, statuses
from zae_limiter.core.limit import Limit, LimitSet
from zae_limiter.core.models import LimitStatus
from zae_limiter.core.validation import WCU

NOW_MS = 1_000_000
RPM = Limit.per_minute("rpm", 60)
TPM = Limit.per_minute("tpm", 6000)
LIMITS = LimitSet.of([RPM, TPM])


def bucket_with(limits: LimitSet, **tokens_milli: int) -> Bucket:
    full = full_bucket(limits, NOW_MS)
    cells = {
        name: cell._replace(tokens_milli=tokens_milli.get(name, cell.tokens_milli))
        for name, cell in full.cells.items()
    }
    return full._replace(cells=cells)


@pytest.mark.parametrize(
    ("tokens", "takes", "waits_ms"),
    [
        ({}, {"rpm": 60_000, "tpm": 6_000_000}, {"rpm": 0, "tpm": 0}),
        ({"rpm": 0}, {"rpm": 1000}, {"rpm": 1000}),
        ({"rpm": 0}, {"rpm": 1}, {"rpm": 1}),
        ({"rpm": -500}, {"rpm": 1000, "tpm": 1}, {"rpm": 1500, "tpm": 0}),
        ({"rpm": 0, "tpm": 0}, {"rpm": 1000, "tpm": 600_000}, {"rpm": 1000, "tpm": 6000}),
        ({}, {"rpm": 60_001}, {"rpm": NEVER}),
        ({"rpm": -500}, {"rpm": 0}, {}),
        ({"rpm": -500}, {"tpm": 1}, {"tpm": 0}),
        ({"rpm": -500}, {}, {}),
    ],
)
def test_waits(tokens: dict[str, int], takes: dict[str, int], waits_ms: dict[str, float]) -> None:
    verdict = judge(bucket_with(LIMITS, **tokens), takes)
    assert verdict.waits_ms == waits_ms
    assert verdict.fits == (sum(waits_ms.values()) == 0)
    assert verdict.wait_ms == max([0, *waits_ms.values()])


@settings(untimed, max_examples=200)
@given(limit_sets("rpm", "tpm", max_amount=500), st.sampled_from([1, 2, 8]), st.data())
def test_waiting_as_told_is_enough_and_a_millisecond_less_is_not(
    limits: LimitSet, shard_count: int, data: st.DataObject
) -> None:
    bucket = full_bucket(limits, NOW_MS)._replace(shard=shard_count - 1, shard_count=shard_count)
    cells, takes_milli = {}, {}
    for name, cell in bucket.cells.items():
        ceiling_milli = bucket.ceiling_milli(name)
        tokens_milli = data.draw(st.integers(-ceiling_milli, ceiling_milli), "tokens")
        last = 0 if tokens_milli == ceiling_milli else bucket.rate(name).period_ms - 1
        remainder = data.draw(st.integers(0, last), "remainder")
        cells[name] = cell._replace(tokens_milli=tokens_milli, remainder=remainder)
        takes_milli[name] = data.draw(st.integers(0, ceiling_milli), "wanted")
    bucket = bucket._replace(cells=cells)
    wait_ms = judge(bucket, takes_milli).wait_ms
    assume(wait_ms > 0)
    assert wait_ms == int(wait_ms)
    assert judge(refill(bucket, NOW_MS + int(wait_ms)), takes_milli).fits
    assert not judge(refill(bucket, NOW_MS + int(wait_ms) - 1), takes_milli).fits


def test_a_shard_can_never_give_more_than_its_part() -> None:
    shard = bucket_with(LIMITS, rpm=15_000)._replace(shard=1, shard_count=4)
    assert judge(shard, {"rpm": 15_000}).fits
    assert judge(shard, {"rpm": 15_001}).wait_ms == math.inf


@quick
@given(limit_sets("rpm", max_amount=500), st.sampled_from([(2, 2), (2, 4, 4)]), st.data())
def test_shards_together_are_waited_for_as_one(
    limits: LimitSet, counts: tuple[int, ...], data: st.DataObject
) -> None:
    """Shards (0, 1) of 2, or shard 0 of 2 beside 1 and 3 of 4, as after uneven splits."""
    places = {2: (0, 1), 3: (0, 1, 3)}[len(counts)]
    shards = []
    for shard, count in zip(places, counts, strict=True):
        item = full_bucket(limits, NOW_MS)._replace(shard=shard, shard_count=count)
        ceiling_milli = item.ceiling_milli("rpm")
        tokens_milli = data.draw(st.integers(-ceiling_milli, ceiling_milli), "tokens")
        cell = item.cells["rpm"]._replace(tokens_milli=tokens_milli)
        shards.append(item._replace(cells={"rpm": cell}))
    capacity_milli = limits.by_name["rpm"].capacity * 1000
    wanted = {"rpm": data.draw(st.integers(1, capacity_milli), "wanted")}
    wait_ms = judge_shards(shards, wanted).wait_ms

    def held_milli(later_ms: int) -> int:
        return sum(refill(s, NOW_MS + later_ms).cells["rpm"].tokens_milli for s in shards)

    assert held_milli(int(wait_ms)) >= wanted["rpm"]
    assert wait_ms == 0 or held_milli(int(wait_ms) - 1) < wanted["rpm"]
    assert judge_shards(shards, {"rpm": capacity_milli + 1}).wait_ms == math.inf


def test_a_shard_that_is_full_does_not_help_the_others_to_fill() -> None:
    limits = LimitSet.of([RPM])
    halves = [bucket_with(limits, rpm=n)._replace(shard_count=2) for n in (30_000, 0)]
    shards = [halves[0], halves[1]._replace(shard=1)]
    assert judge_shards(shards, {"rpm": 30_000}).fits
    assert judge_shards(shards, {"rpm": 31_000}).wait_ms == 2000
    assert judge_shards(shards, {"rpm": 60_000}).wait_ms == 60_000


def test_shards_are_waited_for_to_the_millisecond_and_asked_nothing_do_not_block() -> None:
    halves = [bucket_with(LIMITS, tpm=-1)._replace(shard_count=2, shard=n) for n in (0, 1)]
    assert judge_shards(halves, {"tpm": 1}).wait_ms == 1
    assert judge_shards(halves, {"tpm": 0}).fits


def test_the_allowance_of_writes_is_nothing_to_wait_for() -> None:
    bucket = take_tokens(full_bucket(LIMITS, NOW_MS, metered=True), {WCU: 1_000_000}, 1)
    takes_milli = {"rpm": 1000, WCU: 1000}
    assert judge(bucket, takes_milli).waits_ms == {"rpm": 0}
    assert judge_shards([bucket, bucket], takes_milli).waits_ms == {"rpm": 0}


def test_time_to_gain_counts_the_remainder_and_not_the_ceiling() -> None:
    limits = LimitSet.of([Limit.custom("x", 1, 1, 7)])
    bucket = full_bucket(limits, NOW_MS)
    assert time_to_gain_ms(bucket, "x", 1) == 7
    assert time_to_gain_ms(bucket, "x", 5000) == 35_000
    cell = bucket.cells["x"]._replace(remainder=6000)
    nearly = bucket._replace(cells={"x": cell})
    assert time_to_gain_ms(nearly, "x", 1) == 1
    assert time_to_gain_ms(nearly, "x", 0) == 0


def test_statuses_show_every_limit_also_those_not_asked() -> None:
    bucket = bucket_with(LIMITS, rpm=1500, tpm=-1)
    found = statuses("key", "gpt-4", [bucket], LIMITS, {"rpm": 3000})
    assert found == [
        LimitStatus("key", "gpt-4", "rpm", RPM, 1, 3, True, 1.5),
        LimitStatus("key", "gpt-4", "tpm", TPM, -1, 0, False, 0.0),
    ]


def test_a_limit_that_blocks_for_a_millisecond_blocks() -> None:
    found = statuses("key", "gpt-4", [bucket_with(LIMITS, rpm=999)], LIMITS, {"rpm": 1000})
    assert found[0] == LimitStatus("key", "gpt-4", "rpm", RPM, 0, 1, True, 0.001)


def test_statuses_add_up_what_the_shards_hold() -> None:
    halves = [bucket_with(LIMITS, rpm=n)._replace(shard_count=2) for n in (1500, 1600)]
    shards = [halves[0], halves[1]._replace(shard=1)]
    found = statuses("key", "gpt-4", shards, LIMITS, {"rpm": 4000})
    assert found[0] == LimitStatus("key", "gpt-4", "rpm", RPM, 3, 4, True, 0.9)


def test_statuses_of_what_can_never_be_say_so() -> None:
    found = statuses("key", "gpt-4", [bucket_with(LIMITS)], LIMITS, {"rpm": 61_000, "tpm": 1000})
    assert [(s.exceeded, s.retry_after_seconds) for s in found] == [(True, math.inf), (False, 0.0)]
