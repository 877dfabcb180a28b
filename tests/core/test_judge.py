from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.strategies import limit_sets
from zae_limiter.core.composite import Bucket, full_bucket, refill
from zae_limiter.core.judge import NEVER, judge, statuses, time_to_gain_ms
from zae_limiter.core.limit import Limit, LimitSet
from zae_limiter.core.models import LimitStatus

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


@settings(max_examples=200, deadline=None)
@given(limit_sets("rpm", "tpm", max_amount=500), st.sampled_from([1, 2, 8]), st.data())
def test_waiting_as_told_is_enough_and_a_millisecond_less_is_not(
    limits: LimitSet, shard_count: int, data: st.DataObject
) -> None:
    bucket = full_bucket(limits, NOW_MS)._replace(shard=shard_count - 1, shard_count=shard_count)
    cells, takes_milli = {}, {}
    for name, cell in bucket.cells.items():
        ceiling_milli = bucket.ceiling_milli(name)
        tokens_milli = data.draw(st.integers(-ceiling_milli, ceiling_milli), "tokens")
        last = 0 if tokens_milli == ceiling_milli else bucket.period_ms(name) - 1
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


def test_statuses_of_what_can_never_be_say_so() -> None:
    found = statuses("key", "gpt-4", [bucket_with(LIMITS)], LIMITS, {"rpm": 61_000, "tpm": 1000})
    assert [(s.exceeded, s.retry_after_seconds) for s in found] == [(True, math.inf), (False, 0.0)]
