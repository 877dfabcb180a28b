"""Taking from several items of a bucket one after the other."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.bucket import Bucket, BucketAddress
from ...core.ledger import Ledger
from ...core.writes import Granted, Refused
from ..acquire.charge import Charge
from ..acquire.dispatch import dispatch
from ..acquire.settle import refund
from ..acquire.step_back import step_back
from ..scope import Scope
from .parts import Items, asked_milli, balances_milli, plan_part, view, views
from .split_amount import suffices

# Each lost race means that another client won it; a bound keeps it finite.
_MAX_ATTEMPTS = 16


async def take_in_turn(scope: Scope, charge: Charge, found: Items) -> bool:
    """True when all was taken; else what was had is given back."""
    missing_milli = asked_milli(charge)
    left = dict(found)
    while any(missing_milli.values()):
        balances = balances_milli(views(charge, left), missing_milli)
        if not suffices(balances, missing_milli, 0):
            await _give_back(scope, charge)
            return False
        address = max(left, key=lambda a: sum(balances[a].values()))
        await _take_part(scope, charge, address, left.pop(address), missing_milli)
    return True


async def _give_back(scope: Scope, charge: Charge) -> None:
    taken = Ledger(charge.entries)
    charge.entries, charge.shards = [], ()
    await refund(scope, taken)


async def _take_part(
    scope: Scope,
    charge: Charge,
    address: BucketAddress,
    bucket: Bucket,
    missing_milli: dict[str, int],
) -> None:
    """Take what this item can give of what is missing."""
    acquires = 0 if charge.entries else charge.intent.acquires
    operation, part = "", charge.entry(address, {}, acquires)
    for lost in range(_MAX_ATTEMPTS):
        part_milli = _part_milli(charge, bucket, missing_milli)
        if not part_milli:
            return
        if part_milli != part.charged_milli:
            # What was tried before must not be taken for this, should it land late.
            operation, part = scope.io.operation_id(), charge.entry(address, part_milli, acquires)
        write = plan_part(charge, bucket, part, operation)
        outcome = await dispatch(scope, charge, part, write)
        if not isinstance(outcome, Refused):
            break
        bucket = outcome.bucket
        await step_back(scope, lost)
    else:
        return
    if isinstance(outcome, Granted):
        for name, amount_milli in part_milli.items():
            missing_milli[name] -= amount_milli


def _part_milli(charge: Charge, bucket: Bucket, missing_milli: Mapping[str, int]) -> dict[str, int]:
    cells = view(charge, bucket).cells
    parts_milli = {n: min(missing, cells[n].tokens_milli) for n, missing in missing_milli.items()}
    return {name: part_milli for name, part_milli in parts_milli.items() if part_milli > 0}
