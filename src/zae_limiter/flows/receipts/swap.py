"""Swapping receipts so that each swap takes effect once, however often the answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.exceptions import StorageUnavailable
from ...core.idempotency import Landing
from ...core.receipts import Receipt, ReceiptSwap, StaleReceipt, fencing
from ...core.writes import UNSEEN, Granted, Outcome
from ...ports.repository_protocol import StoreClosed
from ..acquire.send import Addressed, ask_store, unfenced
from ..scope import Scope

_DELAYS_S = (0.01, 0.05, 0.2, 0.4)
# Each further look means that another client has changed the receipt meanwhile.
_MAX_LOOKS = 8


async def swap_charging(
    scope: Scope, swap: ReceiptSwap, writes: Sequence[Addressed]
) -> list[Outcome] | StaleReceipt:
    """Keep a receipt and charge bucket items, all or none.

    When the answer is lost, the receipt tells whether the transaction landed. If it did not, it
    never will: the receipt has another revision by then, so that the swap is stale.
    """
    local = scope.local
    writes = [(address, unfenced(write, local.images.get(address))) for address, write in writes]
    try:
        outcomes = await scope.store.receipts.swap(swap, writes)
    except StorageUnavailable as error:
        if not error.ambiguous:
            raise
        found = await whether_landed(scope, swap, error)
        outcomes = found if isinstance(found, StaleReceipt) else [Granted(UNSEEN)] * len(writes)
    if isinstance(outcomes, list):
        carried_out = all(isinstance(outcome, Granted) for outcome in outcomes)
        for (address, _), outcome in zip(writes, outcomes, strict=True):
            if carried_out or not isinstance(outcome, Granted):
                local.remember(address, outcome)
    return outcomes


async def whether_landed(
    scope: Scope, swap: ReceiptSwap, error: StorageUnavailable
) -> Receipt | StaleReceipt:
    """Return the stored receipt if a swap that charges has landed; otherwise move the revision that
    the swap was planned on, as a fence. Raises the error where neither can be told."""
    receipts, key = scope.store.receipts, swap.after.key
    for _ in range(_MAX_LOOKS):
        try:
            stored = await ask_store(scope, lambda: receipts.read(key), is_owed=False)
            landing = swap.landing(stored)
            if stored is not None and landing is Landing.LANDED:
                return stored
            if landing is Landing.UNKNOWN:
                break
            if swap.is_stale(stored):
                return StaleReceipt(stored)
            fence = fencing(stored, swap.after, scope.io.operation_id())
            if not isinstance(await receipts.swap(ReceiptSwap(stored, fence)), StaleReceipt):
                return StaleReceipt(fence)
        except (StorageUnavailable, StoreClosed) as failure:
            if not failure.ambiguous:
                raise error from failure
    raise error


async def swap_surely(
    scope: Scope, swap: ReceiptSwap, has_landed: Callable[[Receipt], bool]
) -> Receipt | StaleReceipt:
    """Swap a receipt, and send the swap again if its answer is lost: a second copy finds the first
    one stored. Returns the receipt that was kept.

    `has_landed`: whether a stored receipt shows that the swap has taken effect.
    """
    is_sent_before = False
    for delay_s in (*_DELAYS_S, None):
        try:
            answer = await scope.store.receipts.swap(swap)
        except StorageUnavailable as error:
            if not error.retryable or delay_s is None or scope.io.left_s() <= delay_s:
                raise
            is_sent_before = is_sent_before or error.ambiguous
            await scope.io.pause(delay_s)
            continue
        if not isinstance(answer, StaleReceipt):
            return swap.after
        if is_sent_before and answer.receipt is not None and has_landed(answer.receipt):
            return answer.receipt
        return answer
    raise AssertionError("the last failure is raised")
