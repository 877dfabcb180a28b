"""Charging every level of a chain, all or none."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.ledger import Ledger
from ...core.rate_limit_exceeded import RateLimitExceeded
from ..scope import Scope
from .charge import Charge, Shortage, Taken, status_of
from .foresee import foresee
from .item import take
from .settle import refund
from .unknown import find_out


class Refusal(Exception):
    """At least one level was short; every level is as if nothing had been asked."""

    def __init__(self, outcomes: Sequence[Taken | Shortage]) -> None:
        super().__init__()
        self.outcomes = outcomes
        shortages = [outcome for outcome in outcomes if isinstance(outcome, Shortage)]
        self.worst = max(shortages, key=lambda shortage: shortage.wait_ms)

    def to_error(self) -> RateLimitExceeded:
        """What the caller sees."""
        return RateLimitExceeded([s for outcome in self.outcomes for s in status_of(outcome)])


async def take_all(scope: Scope, charges: Sequence[Charge], *, speculative: bool) -> Ledger:
    """Charge every level at once. If one is short or fails, undo the others; if one is known
    to be short, charge none."""
    hopeless = foresee(scope, charges)
    if hopeless:
        raise Refusal(hopeless)
    outcomes: Sequence[Taken | Shortage | BaseException]
    try:
        if len(charges) == 1:
            outcome = await take(scope, charges[0], speculative=speculative)
            if isinstance(outcome, Taken):
                return Ledger(outcome.charge.entries)
            outcomes = (outcome,)
        else:
            flows = [take(scope, charge, speculative=speculative) for charge in charges]
            outcomes = await scope.io.gather(flows)
        if all(isinstance(outcome, Taken) for outcome in outcomes):
            return _ledger(charges)
        raise _worst(outcomes)
    except BaseException:
        await undo(scope, charges)
        raise


def _worst(outcomes: Sequence[Taken | Shortage | BaseException]) -> BaseException:
    """A failure that is no `Exception` goes first, then any other, then the refusal."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    failures.sort(key=lambda failure: isinstance(failure, Exception))
    if failures:
        return failures[0]
    return Refusal([o for o in outcomes if not isinstance(o, BaseException)])


def _ledger(charges: Sequence[Charge]) -> Ledger:
    return Ledger([entry for charge in charges for entry in charge.entries])


async def undo(scope: Scope, charges: Sequence[Charge]) -> None:
    """Give back what these charges took, also where the answer never arrived."""
    try:
        for charge in charges:
            if charge.sent:
                await find_out(scope, charge)
    finally:
        await refund(scope, _ledger(charges))
