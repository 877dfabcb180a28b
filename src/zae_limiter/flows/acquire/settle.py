"""Corrections and refunds of a lease: unconditional writes, one for each bucket item.

They are owed, so their callers `pay` them: a task that is cancelled meanwhile, however often,
waits until they are written.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Literal, TypeVar

from ...core.bucket import BucketAddress
from ...core.events import LostWrite
from ...core.exceptions import NamespaceStateError
from ...core.ledger import Ledger
from ...core.limit import MILLI
from ..coalesce.batch import correct_item
from ..config.registration import confirm_data
from ..scope import Scope
from .charge import Correction
from .failed_writes import log_failed_write

T = TypeVar("T")
_NOT_REFUNDED = "Refund failed, the tokens stay charged"
_NOT_CORRECTED = "Correction failed, the charge stays as it was"
_Owed = Sequence[tuple[BucketAddress, Correction]]


def pay(scope: Scope, owed: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Carry out what is owed, cancelled or not, in a time of its own: the caller's may be over."""
    return scope.io.shield(scope.io.within(owed, scope.settings.patience_s))


async def refund(scope: Scope, ledger: Ledger) -> bool:
    """Give back everything the ledger holds. A failure is logged: the tokens stay charged, and the
    answer is False."""
    owed = [(address, Correction(d, acquires)) for address, d, acquires in ledger.refunds()]
    outcomes = await _write(scope, ledger, owed, _NOT_REFUNDED)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
            # An interrupt that the refund has outlived.
            raise outcome
    return not any(isinstance(outcome, Exception) for outcome in outcomes)


async def settle(scope: Scope, ledger: Ledger) -> None:
    """Write the corrections the ledger was told of, one write for each bucket. Where the namespace
    has gone with its buckets, nothing is left to correct, which is logged."""
    if not ledger.pending_milli:
        return
    intents = {entry.address: entry.intents for entry in ledger.entries}
    owed = [
        (address, Correction(deltas_milli, 0, intents[address]))
        for address, deltas_milli in ledger.corrections()
    ]
    for outcome in await _write(scope, ledger, owed, _NOT_CORRECTED):
        if isinstance(outcome, BaseException) and not isinstance(outcome, NamespaceStateError):
            raise outcome


async def _write(scope: Scope, ledger: Ledger, owed: _Owed, failed: str) -> list[object]:
    """Write all corrections and return their outcomes. Log those that could not be carried out."""
    outcomes: list[object]
    try:
        await confirm_data(scope)
    except NamespaceStateError as gone:
        outcomes = [gone] * len(owed)
    else:
        flows = [correct_item(scope, address, correction) for address, correction in owed]
        outcomes = list(await scope.io.gather(flows))
    scope.local.wait_queues.notify(entry.address.home for entry in ledger.entries)
    for (address, correction), outcome in zip(owed, outcomes, strict=True):
        if isinstance(outcome, Exception):
            log_failed_write(failed, correction.deltas_milli, address, outcome)
            _note_lost(scope, address, correction, outcome, is_refund=failed is _NOT_REFUNDED)
    return outcomes


def _note_lost(
    scope: Scope,
    address: BucketAddress,
    correction: Correction,
    error: Exception,
    *,
    is_refund: bool,
) -> None:
    """Count a write that was given up, and tell the listeners, if there are any."""
    scope.local.counts.lost += 1
    if scope.local.listeners.all:
        amounts = {name: milli // MILLI for name, milli in correction.deltas_milli.items()}
        kind: Literal["refund", "correction"] = "refund" if is_refund else "correction"
        scope.local.listeners.lose(LostWrite(kind, *address, amounts, error))
