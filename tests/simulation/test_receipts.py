"""Receipts in the simulator: keys are charged once, tokens are ended once, whatever happens."""

from __future__ import annotations

from collections import Counter

import pytest

from .campaign import Broken, run_receipt_seed
from .receipt_mutants import RECEIPT_MUTANTS
from .receipt_world import ReceiptWorld

SEEDS = 1000
MOST_SEEDS_OF_A_MUTANT = 400
CHUNK = 125
QUICK_SEEDS = 125
EVERYTHING = {
    *("charged", "repeat", "handed over", "taken up", "expired", "consumed more", "unreachable")
}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first < QUICK_SEEDS else pytest.mark.slow)
        for first in range(0, SEEDS, CHUNK)
    ],
)
def test_keys_are_charged_once_and_tokens_ended_once_in_every_run(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_receipt_seed(seed)


def test_the_runs_contain_every_kind_of_event_about_receipts() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        total += ReceiptWorld(seed).run().claims.seen
        if all(total[name] >= 3 for name in EVERYTHING):
            return
    raise AssertionError(f"too little of {[n for n in EVERYTHING if total[n] < 3]}")


def is_ever_broken() -> bool:
    """Return whether some seed shows a broken promise."""
    for seed in range(MOST_SEEDS_OF_A_MUTANT):
        try:
            run_receipt_seed(seed)
        except Broken:
            return True
    return False


@pytest.mark.parametrize(("target", "mutant"), RECEIPT_MUTANTS.values(), ids=RECEIPT_MUTANTS.keys())
def test_the_simulation_detects_a_limiter_that_mishandles_receipts(
    target: str, mutant: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, mutant)
    assert is_ever_broken()
