"""Corrections and refunds: unconditional writes, one for each bucket item."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress

from ...core.bucket import Bucket, BucketAddress
from ...core.exceptions import StorageUnavailable
from ...core.ledger import Ledger
from ...core.planner import plan_outlasting
from ...core.validation import WCU
from ...core.writes import Absent, Adjust, Outcome
from ..coalesce.flight import fly
from ..coalesce.queue import Corrected, Correction, Rider
from ..scope import Scope
from .charge import ONE_WRITE_MILLI
from .send import send, send_surely

logger = logging.getLogger("zae_limiter")
# Each further attempt means that another client has refilled the item, which sees to it as well.
_MAX_ATTEMPTS = 4


async def refund(scope: Scope, ledger: Ledger) -> None:
    """Give back everything the ledger holds. A failure is logged: the tokens stay charged."""
    flows = [
        _adjust(scope, address, Correction(deltas_milli, acquires))
        for address, deltas_milli, acquires in ledger.refunds()
    ]
    outcomes = await scope.io.gather(flows)
    scope.turnstiles.nudge(entry.address.home for entry in ledger.entries)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            logger.warning("Refund failed, the tokens stay charged: %s", outcome)
        elif isinstance(outcome, BaseException):
            # An interrupt that the refund has outlived.
            raise outcome


async def settle(scope: Scope, ledger: Ledger) -> None:
    """Write the corrections the ledger was told of, one write for each bucket."""
    if not ledger.pending_milli:
        return
    flows = [
        _adjust(scope, address, Correction(deltas_milli, 0))
        for address, deltas_milli in ledger.corrections()
    ]
    outcomes = await scope.io.gather(flows)
    scope.turnstiles.nudge(entry.address.home for entry in ledger.entries)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def _adjust(scope: Scope, address: BucketAddress, correction: Correction) -> None:
    async def together(riders: Sequence[Rider]) -> None:
        await _send(scope, address, _sum(riders))
        for rider in riders:
            rider.outcome = Corrected()

    def alone() -> Awaitable[None]:
        return _send(scope, address, correction)

    await fly(scope, address, correction, alone, together, _is_correction)


def _is_correction(rider: Rider) -> bool:
    return isinstance(rider.load, Correction)


def _sum(riders: Sequence[Rider]) -> Correction:
    """All corrections as one."""
    deltas_milli: dict[str, int] = {}
    acquires = 0
    for rider in riders:
        assert isinstance(rider.load, Correction)
        acquires += rider.load.acquires
        for name, delta_milli in rider.load.deltas_milli.items():
            deltas_milli[name] = deltas_milli.get(name, 0) + delta_milli
    return Correction(deltas_milli, acquires)


async def _send(scope: Scope, address: BucketAddress, correction: Correction) -> None:
    io, deltas_milli = scope.io, correction.deltas_milli
    if scope.store.buckets.metered:
        deltas_milli = {**deltas_milli, WCU: ONE_WRITE_MILLI}
    seen = scope.images.get(address)
    write = Adjust(io.operation_id(), io.now_ms(), deltas_milli, correction.acquires, seen)
    try:
        outcome = await send_surely(scope, address, write)
    finally:
        # Not before: a refusal that comes back meanwhile may be older than the correction.
        scope.refusals.correct(address)
    if not isinstance(outcome, Absent) and _may_go_early(outcome.bucket):
        await _let_outlast_debt(scope, address, outcome)


async def _let_outlast_debt(scope: Scope, address: BucketAddress, outcome: Outcome) -> None:
    """Whatever comes of this, the correction has been made."""
    io = scope.io
    with suppress(StorageUnavailable):
        for _ in range(_MAX_ATTEMPTS):
            if isinstance(outcome, Absent):
                return
            longer = plan_outlasting(outcome.bucket, io.operation_id(), io.now_ms())
            if longer is None:
                return
            outcome = await send(scope, address, longer)


def _may_go_early(bucket: Bucket) -> bool:
    """Only an item that owes something, or holds limits that are not in force, can."""
    return bool(bucket.dormant) or any(cell.tokens_milli < 0 for cell in bucket.cells.values())
