"""Charging every level of a chain, all or none."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..core.composite import BucketAddress
from ..core.exceptions import RateLimitExceeded, StorageUnavailable
from ..core.ledger import Entry, Ledger
from ..core.operations import Landing, landing
from ..core.writes import Adjust
from .charge import Charge, Shortage, Taken, status_of, take
from .scope import Scope
from .send import send

logger = logging.getLogger("zae_limiter")


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
    """Charge every level at once. If one is short or fails, undo the others."""
    outcomes: Sequence[Taken | Shortage | BaseException]
    try:
        if len(charges) == 1:
            outcomes = (await take(scope, charges[0], speculative=speculative),)
        else:
            flows = [take(scope, charge, speculative=speculative) for charge in charges]
            outcomes = await scope.io.gather(flows)
    except BaseException:
        await undo(scope, charges)
        raise
    ledger = Ledger([charge.entry for charge in charges if charge.entry is not None])
    if len(ledger.entries) == len(charges):
        return ledger
    await undo(scope, charges)
    raise _worst(outcomes)


def _worst(outcomes: Sequence[Taken | Shortage | BaseException]) -> BaseException:
    """A failure that is no `Exception` goes first, then any other, then the refusal."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    failures.sort(key=lambda failure: isinstance(failure, Exception))
    if failures:
        return failures[0]
    return Refusal([o for o in outcomes if not isinstance(o, BaseException)])


async def undo(scope: Scope, charges: Sequence[Charge]) -> None:
    """Give back what these charges took, also where the answer never arrived."""
    for charge in charges:
        if charge.sent is not None:
            await _find_out(scope, charge)
    await refund(scope, Ledger([c.entry for c in charges if c.entry is not None]))


async def _find_out(scope: Scope, charge: Charge) -> None:
    """Whether a write of unknown outcome landed. If nobody can tell, it counts as charged."""
    assert charge.sent is not None
    try:
        found = await scope.store.buckets.read([charge.address])
    except StorageUnavailable:
        return
    if landing(charge.sent.operation, found.get(charge.address)) is Landing.LANDED:
        charge.entry = Entry(
            charge.address,
            frozenset(charge.limits.by_name),
            dict(charge.intent.takes_milli),
            charge.intent.acquires,
        )


async def refund(scope: Scope, ledger: Ledger) -> None:
    """Give back everything the ledger holds. A failure is logged: the tokens stay charged."""
    flows = [
        _adjust(scope, address, deltas_milli, acquires)
        for address, deltas_milli, acquires in ledger.refunds()
    ]
    for outcome in await scope.io.gather(flows):
        if isinstance(outcome, BaseException):
            logger.warning("Refund failed, the tokens stay charged: %s", outcome)
    scope.turnstiles.nudge(entry.address for entry in ledger.entries)


async def settle(scope: Scope, ledger: Ledger) -> None:
    """Write the corrections the ledger was told of, one write for each bucket."""
    if not ledger.pending_milli:
        return
    flows = [
        _adjust(scope, address, deltas_milli, 0) for address, deltas_milli in ledger.corrections()
    ]
    outcomes = await scope.io.gather(flows)
    scope.turnstiles.nudge(entry.address for entry in ledger.entries)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def _adjust(
    scope: Scope, address: BucketAddress, deltas_milli: dict[str, int], acquires: int
) -> None:
    io = scope.io
    await send(scope, address, Adjust(io.operation_id(), io.now_ms(), deltas_milli, acquires))
