"""Refilling bucket items ahead of their next acquire, so that clients find the tokens stored."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...core.bucket import BucketAddress, refill, take_tokens
from ...core.changes import ItemActivity
from ...core.exceptions import StorageUnavailable, StoredDataError
from ...core.validation import SET_BACK, WCU
from ...core.writes import Granted, Refill
from ..acquire.charge import ONE_WRITE_MILLI
from ..scope import Scope

logger = logging.getLogger("zae_limiter")


async def refill_items(scope: Scope, active: Mapping[BucketAddress, ItemActivity]) -> int:
    """Refill the items that may soon be short, and return how many were. An item that another
    client has refilled meanwhile refuses the write, and needs it no more."""
    io = scope.io
    refilled = 0
    for address, activity in active.items():
        write = plan_refill(activity, io.operation_id(), io.now_ms())
        if write is None:
            continue
        try:
            outcome = await scope.store.buckets.write(address, write)
        except (StorageUnavailable, StoredDataError) as error:
            logger.warning("%s was not refilled: %s", address, error)
        except Exception:
            # Raised, it would stop the stream for everybody, because of one item.
            logger.exception("%s was not refilled", address)
        else:
            refilled += isinstance(outcome, Granted)
    return refilled


def plan_refill(activity: ItemActivity, operation: str, now_ms: int) -> Refill | None:
    """Return a refill of the item, if it gains by that and still holds less of some limit than the
    batch consumed. The write pays for itself, as those of clients do. The time of an item that was
    set back is left to clients, which know whose clock to go by."""
    image = activity.image
    if SET_BACK in image.dormant:
        return None
    refilled = refill(image, now_ms)
    gains = any(
        cell.tokens_milli > image.cells[name].tokens_milli
        for name, cell in refilled.cells.items()
        if name != WCU
    )
    is_short = any(
        name in refilled.cells and refilled.cells[name].tokens_milli < amount_milli
        for name, amount_milli in activity.counts.consumed_milli.items()
    )
    if not gains or not is_short:
        return None
    price_milli = {WCU: ONE_WRITE_MILLI} if WCU in refilled.cells else {}
    return Refill(operation, now_ms, image, take_tokens(refilled, price_milli, 0))
