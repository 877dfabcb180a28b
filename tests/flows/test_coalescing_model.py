"""With or without coalescing, the same requests are admitted and refused at every moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.crowd import Crowd, crowd, take, wait_of
from tests.support.drivers import Driver
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.core.bucket import Bucket, at, covers, full_bucket, take_tokens
from zae_limiter.core.judge import judge
from zae_limiter.core.limit import LimitSet
from zae_limiter.testing.clock import START_MS

LIMITS = [Limit("rpm", 20, 7, 3), Limit("tpm", 50, 11, 1)]
Amounts = dict[str, int]

drivers = st.sampled_from(["asyncio", "asyncio", "blocking"])
amounts = st.fixed_dictionaries({}, optional={"rpm": st.integers(0, 21), "tpm": st.integers(0, 51)})


def one_by_one(bucket: Bucket, asked: list[Amounts]) -> tuple[list[float], Bucket]:
    """Return the wait of each caller of a group, if each came alone: the first before all others,
    then the callers that fit, then the others."""
    waits: dict[int, float] = {}
    takes = [{name: amount * 1000 for name, amount in each.items()} for each in asked]
    for number, takes_milli in enumerate(takes):
        if covers(bucket, takes_milli):
            bucket = take_tokens(bucket, takes_milli, 1)
            waits[number] = 0
        elif number == 0:
            waits[number] = judge(bucket, takes_milli).wait_ms / 1000
    for number, takes_milli in enumerate(takes):
        if number not in waits:
            waits[number] = judge(bucket, takes_milli).wait_ms / 1000
    return [waits[number] for number in range(len(asked))], bucket


@given(drivers, amounts, st.lists(amounts, min_size=2, max_size=9), st.integers(0, 4000))
@example("asyncio", {"rpm": 10}, [{"rpm": 0}, {"rpm": 8}, {"rpm": 5}], 0)
@settings(max_examples=120, deadline=None)
def test_coalesced_calls_are_served_as_in_some_order_of_single_calls(
    driver: Driver, before: Amounts, asked: list[Amounts], passed_ms: int
) -> None:
    async def check() -> None:
        async with crowd(driver, "memory://", LIMITS, refusal_cache_ttl=0) as it:
            await take(it.limiter, **before)  # type: ignore[arg-type]
            it.clock.advance(passed_ms / 1000)
            waits = await it.meet(*(wait_of(it.limiter, "key-1", **each) for each in asked))
            limits = LimitSet.of(LIMITS)
            primed, bucket = one_by_one(full_bucket(limits, START_MS), [before])
            bucket = at(bucket, limits, it.clock.now_ms())
            expected, bucket = one_by_one(bucket, asked)
            assert waits == expected
            if 0 in (*primed, *expected):
                found = at(await it.bucket(), limits, it.clock.now_ms())
                assert (found.cells, found.acquires) == (bucket.cells, bucket.acquires)

    asyncio.run(check())


@dataclass(frozen=True)
class Step:
    """A step is a group of callers that meet, after a while. Each call is settled, corrected or
    fails."""

    after_ms: int
    asked: list[tuple[Amounts, int | None]]


steps = st.builds(
    Step,
    st.sampled_from([0, 1, 3, 250, 999, 1000, 4000, 3_600_000]),
    st.lists(st.tuples(amounts, st.sampled_from([0, 0, 0, None, -3, 5])), min_size=1, max_size=5),
)


async def act(it: Crowd, asked: Amounts, ending: int | None) -> str:
    """Acquire, and fail or correct."""
    try:
        async with it.limiter.acquire("key-1", "gpt-4", asked) as lease:
            if ending is None:
                raise LookupError
            correction = lease.adjust(rpm=max(ending, -asked.get("rpm", 0)))
            if asyncio.iscoroutine(correction):
                await correction
    except LookupError:
        return "failed"
    except RateLimitExceeded as refused:
        return "refused" if refused.retryable else "hopeless"
    return "settled"


async def play(driver: Driver, url: str, tape: list[Step], **options: Any) -> list[Any]:
    """Return everything that a client can see of a run."""
    seen: list[Any] = []
    admitted = 0
    async with crowd(driver, url, LIMITS, **options) as it:
        for step in tape:
            it.clock.advance(step.after_ms / 1000)
            endings = await it.meet(*(act(it, asked, ending) for asked, ending in step.asked))
            admitted += endings.count("settled")
            seen.append(endings)
        buckets = await it.repository.get_buckets("key-1")
        found, _ = await it.repository.get_usage_snapshots("key-1", window_type="hourly")
        seen.append([(state.tokens_milli, state.total_consumed_milli) for state in buckets])
        seen.append([(each.window_start, each.counters, each.total_events) for each in found])
        assert sum(each.total_events for each in found) == admitted
        for state in buckets:
            used = sum(each.counters.get(state.limit_name, 0) for each in found)
            assert used * 1000 == state.total_consumed_milli
            assert state.total_consumed_milli == _net_milli(tape, seen, state.limit_name)
    return seen


def _net_milli(tape: list[Step], seen: list[Any], name: str) -> int:
    """Return the millitokens that the callers know to have been charged in the end."""
    total = 0
    for step, endings in zip(tape, seen, strict=False):
        for (asked, correction), ending in zip(step.asked, endings, strict=True):
            if ending == "settled":
                total += asked.get(name, 0)
                if name == "rpm" and correction:
                    total += max(correction, -asked.get("rpm", 0))
    return total * 1000


@given(drivers, st.lists(steps, min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_a_tape_has_equal_outcomes_with_and_without_coalescing_and_cache(
    driver: Driver, tape: list[Step]
) -> None:
    """Equal amounts at equal times are admitted alike, and count alike."""
    together = asyncio.run(play(driver, "memory://", tape))
    assert asyncio.run(play(driver, "memory://", tape, coalesce=False)) == together
    assert asyncio.run(play(driver, "memory://", tape, refusal_cache_ttl=0)) == together
