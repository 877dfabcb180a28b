from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.backends.dynamodb.wire.retry import Backoff, delays

_BACKOFFS = st.builds(
    Backoff,
    retries=st.integers(0, 20),
    base_s=st.floats(0, 1),
    ceiling_s=st.floats(0, 2),
    total_s=st.floats(0, 5),
)


@given(_BACKOFFS, st.lists(st.integers(0, 2**80 - 1), min_size=20, max_size=20))
def test_waits_are_bounded_in_number_step_and_total(backoff: Backoff, entropy: list[int]) -> None:
    source = iter(entropy)
    waits = list(delays(backoff, lambda: next(source)))
    assert len(waits) == backoff.retries
    assert all(0 <= wait <= backoff.ceiling_s for wait in waits)
    assert all(wait <= backoff.base_s * 2**step for step, wait in enumerate(waits))
    assert sum(waits) <= backoff.total_s + 1e-9


def test_waits_spread_from_nothing_to_the_whole_step() -> None:
    backoff = Backoff(retries=2, base_s=0.1, ceiling_s=1, total_s=9)
    low, high = 0, 0xFFFF_FFFF
    assert list(delays(backoff, lambda: low)) == [0, 0]
    assert list(delays(backoff, lambda: high)) == [0.1, 0.2]


def test_no_entropy_is_drawn_before_it_is_needed() -> None:
    drawn: list[int] = []

    def entropy() -> int:
        drawn.append(1)
        return 0

    waits = delays(Backoff(), entropy)
    assert not drawn
    next(waits)
    assert len(drawn) == 1
