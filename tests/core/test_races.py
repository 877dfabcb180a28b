from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.racing import Race, Step
from tests.core.strategies import limit_sets
from zae_limiter.core.limit import LimitSet

NAMES = ("fast", "slow")
MAX_DELAY_MS = 300
MAX_TOKENS = 20

waits_ms = st.sampled_from([0, 0, 0, 1, 7, 40, 250, 900, 1500, 20_000, 200_000])
amounts_milli = st.one_of(
    st.integers(0, MAX_TOKENS).map(lambda tokens: tokens * 1000),
    st.integers(0, MAX_TOKENS * 1000),
)
clocks_ms = st.lists(st.integers(-2000, 2000), min_size=3, max_size=3)
small_limit_sets = limit_sets(*NAMES, max_amount=MAX_TOKENS)


def steps(*verbs: str, signed: bool = True) -> st.SearchStrategy[list[Step]]:
    amount = st.tuples(amounts_milli, st.sampled_from([-1, 1])).map(lambda pair: pair[0] * pair[1])
    amounts = st.dictionaries(st.sampled_from(NAMES), amount if signed else amount.map(lambda a: -abs(a)))
    step = st.builds(
        Step, st.sampled_from(verbs), st.integers(0, 2), waits_ms, amounts, st.integers(0, 2)
    )
    return st.lists(step, max_size=60)


taking = ("look", "speculate", "speculate", "take", "take", "prepare", "land", "resend")


@settings(max_examples=300, deadline=None)
@given(small_limit_sets, clocks_ms, steps(*taking, "adjust"))
def test_no_race_lets_out_more_than_the_window_allows(
    limits: LimitSet, clocks: list[int], tape: list[Step]
) -> None:
    Race([limits], clocks, max_delay_ms=MAX_DELAY_MS).run(tape).assert_window_theorem()
