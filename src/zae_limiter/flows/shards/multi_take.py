"""Taking what no single item of a bucket has from several of them.

That is one step, all or none. Where it can it only takes what is stored, which succeeds
whoever else writes to the items meanwhile, as long as they leave enough. An item that has to
be refilled is another matter: whoever refills it first spoils the step. Where that goes on,
and the bucket still has enough, the items are charged one after the other, so that there is
only one of them to race for at a time; what was taken is given back if the rest cannot be had.
"""

from __future__ import annotations

from ...core.exceptions import StorageUnavailable
from ...core.judge import judge_shards
from ..acquire.charge import Charge, Shortage, Taken, shortage
from ..acquire.step_back import step_back
from ..scope import Scope
from .at_once import take_at_once
from .in_turn import take_in_turn
from .overview import overlook
from .parts import views

_MAX_ROUNDS = 24
# Most who lose a race here find that too little is left.
_ROUNDS_AT_ONCE = 2
_PATIENCE_MS = 10_000


async def withdraw(scope: Scope, charge: Charge) -> Taken | Shortage | None:
    """Charge the bucket as a whole; None when there is nothing left of it."""
    home = charge.address.home
    deadline_ms = scope.io.now_ms() + _PATIENCE_MS
    for lost in range(_MAX_ROUNDS):
        found = await overlook(scope, charge)
        if not found:
            return None
        # Nobody is refused while holding a part: the verdict is on the bucket as others see it.
        shards = list(views(charge, found).values())
        if not judge_shards(shards, charge.intent.takes_milli).fits:
            return shortage(charge, shards)
        known = await take_at_once(scope, charge, found)
        if known is None or (lost >= _ROUNDS_AT_ONCE and await take_in_turn(scope, charge, known)):
            return Taken(charge)
        if scope.io.now_ms() > deadline_ms:
            break
        await step_back(scope, lost)
    raise StorageUnavailable(f"{home} is too contended")
