"""Sending writes that charge."""

from __future__ import annotations

from ...core.exceptions import StorageUnavailable
from ...core.ledger import Entry
from ...core.writes import Granted, Outcome, Write
from ..scope import Scope
from .charge import Charge
from .send import send


async def dispatch(scope: Scope, charge: Charge, entry: Entry, write: Write) -> Outcome:
    """Send a write that charges this, so that it is known of whatever happens meanwhile."""
    charge.sent = ((write.operation, entry),)
    try:
        outcome = await send(scope, entry.address, write)
    except StorageUnavailable as error:
        charge.give_up(error)
        raise
    if isinstance(outcome, Granted):
        entries, shards = [*charge.entries, entry], (*charge.shards, outcome.bucket)
        # One after the other, with no call between at which an interrupt could come: else it
        # would be given back twice, or not at all.
        charge.sent = ()
        charge.entries = entries
        charge.shards = shards
    charge.sent = ()
    return outcome
