"""What one item of a bucket gives to a charge that is taken from several."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.bucket import Bucket, BucketAddress, at
from ...core.ledger import Entry
from ...core.planner import plan
from ...core.validation import WCU
from ...core.writes import Borrow, Drain, Fill, Refill
from ..acquire.charge import ONE_WRITE_MILLI, Charge
from .split_amount import Balances

Items = Mapping[BucketAddress, Bucket]
# An item that can be written so often without a refill may as well count this write.
_SPARE_MILLI = 32 * ONE_WRITE_MILLI


def asked_milli(charge: Charge) -> dict[str, int]:
    """What is to be had. Nobody waits for an item's own allowance here."""
    takes_milli = charge.intent.takes_milli
    return {name: amount for name, amount in takes_milli.items() if amount and name != WCU}


def view(charge: Charge, bucket: Bucket) -> Bucket:
    """An item as it stood when the request came."""
    return at(bucket, charge.limits, charge.begun_ms, metered=True)


def views(charge: Charge, found: Items) -> dict[BucketAddress, Bucket]:
    """The items as they stood then."""
    return {address: view(charge, bucket) for address, bucket in found.items()}


def balances_milli(shards: Items, names: Mapping[str, int]) -> Balances:
    """What each of them holds."""
    return {
        address: {name: max(0, shard.cells[name].tokens_milli) for name in names}
        for address, shard in shards.items()
    }


def stored_milli(charge: Charge, found: Items) -> Balances:
    """What can be taken of each item without a refill, so that it does not matter if someone
    else refills it meanwhile."""
    names = asked_milli(charge)
    return {
        address: {name: _drainable_milli(charge, bucket, name) for name in names}
        for address, bucket in found.items()
    }


def _drainable_milli(charge: Charge, bucket: Bucket, name: str) -> int:
    tokens_milli = bucket.cells[name].tokens_milli if name in bucket.cells else 0
    if tokens_milli <= 0:
        return 0
    all_of_it = charge.intent._replace(takes_milli={name: tokens_milli})
    planned = plan(all_of_it, bucket, "", charge.begun_ms)
    return tokens_milli if isinstance(planned, Drain) else 0


def plan_part(
    charge: Charge, bucket: Bucket, part: Entry, operation: str
) -> Borrow | Drain | Fill | Refill:
    """The write that takes a part which the item had when the request came."""
    takes_milli = dict(part.charged_milli)
    if WCU in bucket.cells and bucket.cells[WCU].tokens_milli >= _SPARE_MILLI:
        takes_milli[WCU] = ONE_WRITE_MILLI
    intent = charge.intent._replace(takes_milli=takes_milli, acquires=part.acquires)
    planned = plan(intent, bucket, operation, charge.begun_ms)
    assert isinstance(planned, Borrow | Drain | Fill | Refill), planned
    return planned
