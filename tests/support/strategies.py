"""What the properties of the core draw from."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from zae_limiter.core.limit import Limit, LimitSet

# Examples vary too much in length, and machines in speed, for times to mean anything.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
quick = settings(untimed, max_examples=100)

PERIODS_S = (1, 7, 60, 3600, 86400)


def limits(name: str = "rpm", max_amount: int = 10_000) -> st.SearchStrategy[Limit]:
    """Any capacity with any rate."""
    amounts = st.integers(1, max_amount)
    return st.builds(Limit, st.just(name), amounts, amounts, st.sampled_from(PERIODS_S))


def limit_sets(*names: str, max_amount: int = 10_000) -> st.SearchStrategy[LimitSet]:
    """One limit of each name."""
    each = [limits(name, max_amount) for name in names]
    return st.tuples(*each).map(LimitSet.of)
