from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clauses import outcome_without
from tests.support.racing import Apply, Race, Step, Verb
from tests.support.strategies import limit_sets, quick
from zae_limiter.core.apply import apply
from zae_limiter.core.bucket import Bucket
from zae_limiter.core.limit import MILLI, Limit, LimitSet
from zae_limiter.core.writes import Outcome, Write

MAX_SKEW_MS = 2000
MAX_DELAY_MS = 300
TAKING: tuple[Verb, ...] = ("look", "guess", "begin", "take", "prepare", "land", "resend")

clocks = st.lists(st.integers(0, MAX_SKEW_MS), min_size=3, max_size=3)
two_limits = limit_sets("fast", "slow", max_amount=20)


def amounts_milli(limit: Limit, signs: Sequence[int]) -> st.SearchStrategy[int]:
    """Up to a little more than the capacity, often all of it."""
    full_milli = limit.capacity * MILLI
    amount = st.sampled_from([full_milli, full_milli - 1, 1, 0]) | st.integers(1, full_milli + 1)
    return st.tuples(amount, st.sampled_from(signs)).map(lambda pair: pair[0] * pair[1])


def waits_ms(limits: LimitSet) -> st.SearchStrategy[int]:
    """Often none, else about as long as some limit takes to fill."""
    fill_ms = [int(limit.seconds_to_fill * 1000) for limit in limits.limits]
    parts = [ms // part + 1 for ms in fill_ms for part in (100, 20, 5, 2, 1)]
    return st.just(0) | st.sampled_from([0, 1, MAX_DELAY_MS, *parts, 3 * max(fill_ms)])


def tapes(
    limits: LimitSet, verbs: Sequence[Verb], signs: Sequence[int] = (1, -1)
) -> st.SearchStrategy[list[Step]]:
    amounts = st.fixed_dictionaries(
        {}, optional={limit.name: amounts_milli(limit, signs) for limit in limits.limits}
    )
    step = st.builds(
        Step,
        st.sampled_from(verbs),
        st.integers(0, 2),
        waits_ms(limits),
        amounts,
        st.integers(0, 2),
        st.integers(0, 3),
    )
    return st.lists(step, min_size=20, max_size=40)


@quick
@given(two_limits, clocks, st.booleans(), st.data())
def test_no_race_lets_out_more_than_the_window_allows(
    limits: LimitSet, clocks_ms: list[int], metered: bool, data: st.DataObject
) -> None:
    tape = data.draw(tapes(limits, [*TAKING, "adjust"]))
    race = Race([limits], clocks_ms, max_delay_ms=MAX_DELAY_MS, metered=metered)
    race.run(tape).assert_window_theorem()


@quick
@given(two_limits, clocks, st.booleans(), st.data())
def test_no_race_of_a_split_bucket_lets_out_more_than_the_window_allows(
    limits: LimitSet, clocks_ms: list[int], metered: bool, data: st.DataObject
) -> None:
    # An item in debt does not hold back the others, so here adjusts only give back.
    tape = data.draw(tapes(limits, [*TAKING, "split", "merge", "adjust"], signs=[-1]))
    race = Race([limits], clocks_ms, max_delay_ms=MAX_DELAY_MS, metered=metered)
    race.run(tape).assert_window_theorem()


@quick
@given(two_limits, clocks, st.data())
def test_no_race_with_expiring_buckets_lets_out_more_than_the_window_allows(
    limits: LimitSet, clocks_ms: list[int], data: st.DataObject
) -> None:
    tape = data.draw(tapes(limits, [*TAKING, "vanish"], signs=[1]))
    slack_ms = MAX_SKEW_MS + MAX_DELAY_MS
    ttl_seconds = math.ceil(limits.seconds_to_fill + slack_ms / 1000)
    race = Race([limits], clocks_ms, max_delay_ms=MAX_DELAY_MS, ttl_seconds=ttl_seconds)
    race.run(tape).assert_window_theorem()


@quick
@given(two_limits, clocks, st.booleans(), st.data())
def test_no_race_with_dormant_limits_lets_out_more_than_the_window_allows(
    both: LimitSet, clocks_ms: list[int], splits: bool, data: st.DataObject
) -> None:
    sets = [both, *(LimitSet.of([limit]) for limit in both.limits)]
    verbs: list[Verb] = [*TAKING, "restamp", "adjust"]
    if splits:
        verbs.append("split")
    tape = data.draw(tapes(both, verbs, signs=[-1] if splits else [1, -1]))
    Race(sets, clocks_ms, max_delay_ms=MAX_DELAY_MS).run(tape).assert_window_theorem()


def agreeing(write: Write, bucket: Bucket | None) -> Outcome:
    outcome = apply(write, bucket)
    assert outcome == outcome_without()(write, bucket)
    return outcome


@quick
@given(two_limits, two_limits, limit_sets("slow", "new", max_amount=20), clocks, st.data())
def test_while_limits_change_balances_stay_right_and_apply_does_what_its_clauses_say(
    one: LimitSet, two: LimitSet, three: LimitSet, clocks_ms: list[int], data: st.DataObject
) -> None:
    tape = data.draw(tapes(one, [*TAKING, "restamp", "split", "merge", "adjust"]))
    Race([one, two, three], clocks_ms, apply=agreeing, max_delay_ms=MAX_DELAY_MS).run(tape)


RPS = Limit.per_second("rps", 1, burst=10)
TEN = LimitSet.of([RPS])
FIVE = LimitSet.of([Limit.per_second("rps", 1, burst=5)])
TWO_KINDS = LimitSet.of([RPS, Limit.per_second("new", 1, burst=10)])


def rps(tokens: int) -> dict[str, int]:
    return {"rps": tokens * MILLI}


# The clause without which the tape goes wrong, and the tape.
TAPES: dict[str, tuple[str, list[Step]]] = {
    "two clients create the bucket": (
        "absent",
        [
            Step("prepare", 0, 0, rps(10)),
            Step("prepare", 1, 0, rps(10)),
            Step("land", 0),
            Step("land", 1),
        ],
    ),
    "two clients take the same last tokens": (
        "stored",
        [
            Step("take", 0, 0, rps(1)),
            Step("look", 1),
            Step("prepare", 0, 0, rps(9)),
            Step("prepare", 1, 0, rps(9)),
            Step("land", 0),
            Step("land", 1),
        ],
    ),
    "two clients refill for the same time": (
        "rf",
        [
            Step("take", 0, 0, rps(10)),
            Step("look", 1),
            Step("prepare", 0, 6000, rps(6)),
            Step("prepare", 1, 0, rps(6)),
            Step("land", 0),
            Step("land", 1),
        ],
    ),
    "tokens come back while a refill is under way": (
        "roof",
        [
            Step("take", 0, 0, rps(8)),
            Step("prepare", 0, 5000, rps(3)),
            Step("adjust", 1, 0, rps(-8)),
            Step("land", 0),
        ],
    ),
    "tokens go while a refill is under way": (
        "floor",
        [
            Step("take", 0, 0, rps(5)),
            Step("prepare", 0, 2000, rps(7)),
            Step("adjust", 1, 0, rps(1)),
            Step("land", 0),
        ],
    ),
    "tokens go while the limit is lowered": (
        "floor same",
        [
            Step("take", 0, 0, rps(0)),
            Step("look", 1),
            Step("take", 1, 0, rps(8)),
            Step("restamp", 0, limits=1),
        ],
    ),
    "a bucket that was full for long is emptied and filled": (
        "from",
        [
            Step("take", 0, 0, rps(6)),
            Step("guess", 1, 100_000, rps(4)),
            Step("take", 1, 0, rps(10)),
        ],
    ),
    "a bucket was filled by a refund that the client has not seen": (
        "overflow",
        [
            Step("take", 0, 0, rps(8)),
            Step("adjust", 1, 0, rps(-7)),
            Step("take", 0, 5000, rps(2)),
            Step("take", 0, 0, rps(10)),
        ],
    ),
    "two clients take what was gained, and leave the refill to others": (
        "gained",
        [
            Step("take", 0, 0, rps(10)),
            Step("look", 1),
            Step("prepare", 0, 1000, rps(1)),
            Step("prepare", 1, 0, rps(1)),
            Step("land", 0),
            Step("land", 1),
        ],
    ),
    "what was gained is refilled before someone takes it": (
        "until",
        [
            Step("take", 0, 0, rps(10)),
            Step("look", 1),
            Step("restamp", 0, 900),
            Step("take", 0, 0, {"rps": 900}),
            Step("begin", 1, 100, rps(1)),
        ],
    ),
    "a new limit is put in force twice": (
        "limits",
        [
            Step("take", 0, 0, rps(0)),
            Step("look", 1),
            Step("restamp", 0, limits=2),
            Step("take", 0, 0, {"new": 10_000}, limits=2),
            Step("restamp", 1, limits=2),
        ],
    ),
    "someone has used a bucket that should be full by now": (
        "by",
        [
            Step("take", 0, 0, rps(4)),
            Step("look", 1),
            Step("take", 0, 8000, rps(4)),
            Step("begin", 1, 1000, rps(10)),
        ],
    ),
    "someone took more from a bucket that should be full by now": (
        "full",
        [
            Step("take", 0, 0, rps(1)),
            Step("look", 1),
            Step("take", 0, 1000, rps(10)),
            Step("begin", 1, 2000, rps(1)),
            Step("take", 1, 0, rps(9)),
        ],
    ),
    "a limit is charged while it is about to be forgotten": (
        "same",
        [
            Step("take", 0, 0, {"new": 0}, limits=2),
            Step("look", 1),
            Step("take", 0, 0, {"new": 10_000}, limits=2),
            Step("restamp", 1, limits=0),
            Step("take", 1, 0, {"new": 10_000}, limits=2),
        ],
    ),
    "a limit comes and goes while the bucket is refilled": (
        "dormant",
        [
            Step("take", 0, 0, rps(1)),
            Step("look", 1),
            Step("restamp", 0, limits=2),
            Step("take", 0, 0, {"new": 10_000}, limits=2),
            Step("restamp", 0, limits=0),
            Step("restamp", 1, 100, limits=0),
            Step("take", 1, 0, {"new": 10_000}, limits=2),
        ],
    ),
    "two items are merged while another client takes from one": (
        "generation",
        [
            Step("take", 0, 0, rps(1)),
            Step("split", 0),
            Step("look", 0, shard=1),
            Step("look", 1, shard=1),
            Step("merge", 0),
            Step("take", 0, 0, rps(9)),
            Step("take", 1, 0, rps(4), shard=1),
        ],
    ),
    "an item is charged while it is about to be merged": (
        "same",
        [
            Step("take", 0, 0, rps(1)),
            Step("split", 0),
            Step("look", 0, shard=1),
            Step("look", 1, shard=1),
            Step("take", 1, 0, rps(4), shard=1),
            Step("merge", 0),
            Step("take", 0, 0, rps(9)),
        ],
    ),
    "a write is sent again": (
        "memory",
        [Step("take", 0, 0, rps(1)), Step("guess", 0, 0, rps(1)), Step("resend", 0)],
    ),
    "a refund is sent again": (
        "memory",
        [Step("take", 0, 0, rps(9)), Step("adjust", 0, 0, rps(-2)), Step("resend", 0)],
    ),
}


def race(tape: list[Step], apply: Apply) -> None:
    limit_sets = [TEN, FIVE, TWO_KINDS]
    Race(limit_sets, apply=apply, max_delay_ms=MAX_DELAY_MS).run(tape).assert_window_theorem()


@pytest.mark.parametrize(("clause", "tape"), TAPES.values(), ids=TAPES.keys())
def test_known_tapes_go_well_and_would_go_wrong_without_a_clause(
    clause: str, tape: list[Step]
) -> None:
    race(tape, apply)
    with pytest.raises(AssertionError):
        race(tape, outcome_without(*clause.split()))


def any_tapes(seed: str, count: int) -> Iterator[list[Step]]:
    """Quicker to make than Hypothesis makes them, and the same on every run. Where the
    bucket is split, adjusts only give back."""
    dice = Random(seed)
    whole: list[Verb] = [*TAKING, "adjust"]
    waits_ms = [*[0] * 8, 1, 40, MAX_DELAY_MS, 900, 6000, 30_000]
    for _ in range(count):
        splits = dice.random() < 0.5
        verbs = [*whole, "split", "merge"] if splits else whole
        amounts = (-10, -8, -5, -4, -2, -1) if splits else (-10, -8, -5, -2, 1, 2, 3, 4, 6, 9, 10)
        yield [
            Step(
                dice.choice(verbs),
                dice.randrange(3),
                dice.choice(waits_ms),
                rps(dice.choice(amounts)),
                shard=dice.randrange(4),
            )
            for _ in range(50)
        ]


def test_chance_finds_nothing_wrong() -> None:
    for tape in any_tapes("right", 2000):
        race(tape, apply)


@pytest.mark.parametrize(
    "clause",
    [
        "absent",
        "stored",
        "from",
        "overflow",
        "by",
        "full",
        "gained",
        "rf",
        "roof",
        "floor",
        "shard_count",
        "memory",
    ],
)
def test_chance_finds_a_missing_clause(clause: str) -> None:
    def goes_wrong(tape: list[Step]) -> bool:
        try:
            race(tape, outcome_without(clause))
        except AssertionError:
            return True
        return False

    assert any(goes_wrong(tape) for tape in any_tapes(clause, 2000))
