"""Taking from several items of a bucket in one step, all or none."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.bucket import BucketAddress
from ...core.exceptions import StorageUnavailable
from ...core.ledger import Entry
from ...core.writes import Granted, Outcome, Refused
from ..acquire.charge import Charge
from ..acquire.send import Addressed, send_all
from ..scope import Scope
from .parts import Items, asked_milli, balances_milli, plan_part, stored_milli, views
from .split_amount import Parts, apportion, suffices

# What the items that give keep between them: nothing at first, so that few are written.
_RESERVES_PCT = (0, 25, 25, 25)


async def take_at_once(scope: Scope, charge: Charge, found: Items) -> Items | None:
    """None when all was taken, else the items as far as they are known now. An attempt that is
    refused is followed by one which knows the items that refused it as they are."""
    for reserve_pct in _RESERVES_PCT:
        parts = _choose(charge, found, reserve_pct)
        outcomes = await _send(scope, charge, found, parts) if parts else {}
        if charge.entries:
            return None
        changed = {a: o.bucket for a, o in outcomes.items() if isinstance(o, Refused)}
        if not changed:
            break
        found = {**found, **changed}
    return found


def _choose(charge: Charge, found: Items, reserve_pct: int) -> Parts:
    """Who gives how much: what is stored, if that is plenty, else what there is by now; nobody
    anything if that is too little."""
    asked = asked_milli(charge)
    stored = stored_milli(charge, found)
    if suffices(stored, asked, reserve_pct):
        return apportion(stored, asked, reserve_pct)
    balances = balances_milli(views(charge, found), asked)
    return apportion(balances, asked, reserve_pct) if suffices(balances, asked, 0) else {}


async def _send(
    scope: Scope, charge: Charge, found: Items, parts: Parts
) -> Mapping[BucketAddress, Outcome]:
    """What came of each part; nothing when the store could not do them together."""
    writes: list[Addressed] = []
    sent: list[tuple[str, Entry]] = []
    for address, part_milli in parts.items():
        entry = charge.entry(address, part_milli, 0 if sent else charge.intent.acquires)
        write = plan_part(charge, found[address], entry, scope.io.operation_id())
        writes.append((address, write))
        sent.append((write.operation, entry))
    charge.sent = sent
    try:
        outcomes = await send_all(scope, writes)
    except StorageUnavailable as error:
        charge.give_up(error)
        if error.ambiguous or not error.retryable:
            raise
        # Others wrote to one of the items at the very same time: that is no outage yet.
        outcomes = []
    charge.sent = ()
    granted = [outcome.bucket for outcome in outcomes if isinstance(outcome, Granted)]
    if len(granted) == len(writes):
        charge.entries = [entry for _, entry in sent]
        charge.shards = granted
    return dict(zip(parts, outcomes, strict=False))
