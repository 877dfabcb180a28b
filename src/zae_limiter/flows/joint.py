"""Group commit: charges of one item that meet travel as one write.

The outcome is always one that some order of single writes gives. If all riders together
are more than the item holds, they are walked in the order in which they came: who still
fits flies, the others are refused as if they had come after.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..core.composite import covers
from ..core.composite import take as taken_from
from ..core.naming import WCU
from .charge import ONE_WRITE_MILLI, Charge, LimitsDiffer, Shortage, Taken, shortage
from .flight import ride
from .lanes import Rider
from .scope import Scope

TakeHere = Callable[[Scope, Charge, bool], Awaitable[Taken | Shortage]]


async def take_joined(
    scope: Scope, charge: Charge, speculative: bool, take_here: TakeHere
) -> Taken | Shortage:
    """Charge one item, together with whoever else of this process charges it now."""
    address = charge.address
    if scope.lanes.start(address):
        try:
            return await take_here(scope, charge, speculative)
        finally:
            scope.lanes.end(address)

    async def together(riders: Sequence[Rider]) -> None:
        await _take_together(scope, riders, speculative, take_here)

    def can_ride(rider: Rider) -> bool:
        other = rider.load
        return isinstance(other, Charge) and other.limits.fingerprint == charge.limits.fingerprint

    outcome = (await ride(scope, address, charge, together, can_ride)).outcome
    assert isinstance(outcome, Taken | Shortage)
    return outcome


async def _take_together(
    scope: Scope, riders: Sequence[Rider], speculative: bool, take_here: TakeHere
) -> None:
    group = [(rider, rider.load) for rider in riders if isinstance(rider.load, Charge)]
    while len(group) > 1:
        joint = _joint([charge for _, charge in group])
        try:
            outcome = await take_here(scope, joint, speculative)
        except LimitsDiffer:
            break
        except BaseException:
            _share_what_is_unknown(joint, [charge for _, charge in group])
            raise
        if isinstance(outcome, Taken):
            _share(joint, group)
            return
        group = _walk(group, outcome)
    for rider, charge in group:
        rider.outcome = await take_here(scope, charge, speculative)


def _joint(charges: Sequence[Charge]) -> Charge:
    """All of them as one charge."""
    first = charges[0]
    takes_milli: dict[str, int] = {}
    for charge in charges:
        for name, amount_milli in charge.intent.takes_milli.items():
            takes_milli[name] = takes_milli.get(name, 0) + amount_milli
    if WCU in takes_milli:
        takes_milli[WCU] = ONE_WRITE_MILLI
    acquires = sum(charge.intent.acquires for charge in charges)
    return Charge(
        first.address,
        first.intent._replace(takes_milli=takes_milli, acquires=acquires),
        takes_milli,
        is_leaf=False,
        overridden=all(charge.overridden for charge in charges),
        is_joint=True,
    )


def _share(joint: Charge, group: Sequence[tuple[Rider, Charge]]) -> None:
    """Give each its own part of what was taken together."""
    for rider, charge in group:
        intent = charge.intent
        charge.address = joint.address
        charge.entries = [charge.entry(joint.address, intent.takes_milli, intent.acquires)]
        charge.shards = joint.shards
        rider.outcome = Taken(charge)


def _share_what_is_unknown(joint: Charge, charges: Sequence[Charge]) -> None:
    """Let each find out for itself what became of its part."""
    for charge in charges:
        intent = charge.intent
        charge.sent = [
            (operation, charge.entry(entry.address, intent.takes_milli, intent.acquires))
            for operation, entry in joint.sent
        ]


def _walk(group: Sequence[tuple[Rider, Charge]], short: Shortage) -> list[tuple[Rider, Charge]]:
    """Who still fits, in the order in which they came; the others are refused."""
    now = short.shards[0]
    fitting = []
    refused = []
    for rider, charge in group:
        asked_milli = {n: m for n, m in charge.intent.takes_milli.items() if n != WCU}
        if covers(now, asked_milli):
            now = taken_from(now, asked_milli, 0)
            fitting.append((rider, charge))
        else:
            refused.append((rider, charge))
    for rider, charge in refused:
        rider.outcome = shortage(charge, [now])
    return fitting
