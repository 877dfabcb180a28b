"""Corrections and refunds of a lease: unconditional writes, one for each bucket item."""

from __future__ import annotations

import logging

from ...core.ledger import Ledger
from ..coalesce.batch import correct_item
from ..scope import Scope
from .charge import Correction

logger = logging.getLogger("zae_limiter")


async def refund(scope: Scope, ledger: Ledger) -> None:
    """Give back everything the ledger holds. A failure is logged: the tokens stay charged."""
    flows = [
        correct_item(scope, address, Correction(deltas_milli, acquires))
        for address, deltas_milli, acquires in ledger.refunds()
    ]
    outcomes = await scope.io.gather(flows)
    scope.local.wait_queues.notify(entry.address.home for entry in ledger.entries)
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
    intents = {entry.address: entry.intents for entry in ledger.entries}
    flows = [
        correct_item(scope, address, Correction(deltas_milli, 0, intents[address]))
        for address, deltas_milli in ledger.corrections()
    ]
    outcomes = await scope.io.gather(flows)
    scope.local.wait_queues.notify(entry.address.home for entry in ledger.entries)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
