from __future__ import annotations

import pytest

from tests.support.clauses import outcome_without

from .campaign import Broken, run_seed
from .mutants import FLOWS, STORES
from .truth import Apply

MOST_SEEDS = 6000
# Only chance finds these, after hundreds of seeds.
HARD_TO_FIND = {
    "a refill does not ask who else refilled",
    "what was gained is taken after it was refilled",
    "a full bucket's time is credited twice",
    "what was gained is taken twice",
    "a refill that fills forgets what was taken",
}


def first_broken(apply: Apply | None = None) -> int | None:
    """Return the first seed that shows a broken promise."""
    for seed in range(MOST_SEEDS):
        try:
            run_seed(seed) if apply is None else run_seed(seed, apply)
        except Broken:
            return seed
    return None


@pytest.mark.parametrize(
    "apply",
    [
        pytest.param(mutant, id=name, marks=pytest.mark.slow if name in HARD_TO_FIND else [])
        for name, mutant in STORES.items()
    ],
)
def test_the_simulation_detects_a_wrong_store(apply: Apply) -> None:
    assert first_broken(apply) is not None


@pytest.mark.parametrize(("target", "mutant"), FLOWS.values(), ids=FLOWS)
def test_the_simulation_detects_a_wrong_flow(
    target: str, mutant: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, mutant)
    assert first_broken() is not None


@pytest.mark.slow
def test_the_clauses_that_mutants_leave_out_are_right_when_none_is() -> None:
    for seed in range(100):
        run_seed(seed, outcome_without())
