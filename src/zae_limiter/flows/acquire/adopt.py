"""Limits that have changed while charges of them were on their way."""

from __future__ import annotations

from ..config.resolution import Resolution
from ..config.resolve import resolve_afresh
from ..scope import Scope
from .charge import Charge, intent_for, require_known


async def look_again(scope: Scope, charge: Charge) -> Resolution:
    """What is in force for a bucket now, whatever was when its charge was planned."""
    address = charge.address
    return await resolve_afresh(scope, address.entity_id, address.resource)


def adopt(scope: Scope, charge: Charge, resolution: Resolution) -> None:
    """Go by these limits, unless the caller brought others. Once is enough."""
    if charge.overridden:
        return
    charge.overridden = True
    limits = resolution.limits
    if limits is None:
        return
    if charge.is_leaf:
        require_known(charge.wanted_milli, limits, "consume")
    intent = intent_for(scope, resolution, limits, charge.wanted_milli, charge.intent.acquires)
    if intent.takes_milli != charge.intent.takes_milli:
        # What was tried before must not be taken for this, should it land late.
        charge.operation = scope.io.operation_id()
    charge.intent = intent
