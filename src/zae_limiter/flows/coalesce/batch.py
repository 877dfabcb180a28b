"""Group commit: charges of one item that meet travel as one write.

The outcome is always one that some order of single writes gives. If all riders together
are more than the item holds, they are walked in the order in which they came: who still
fits flies, and the others are judged by what the flight has left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ...core.bucket import Bucket, covers, refill
from ...core.bucket import take as taken_from
from ...core.exceptions import StorageUnavailable, ValidationError
from ...core.ledger import Entry
from ...core.validation import WCU
from ..acquire.adopt import adopt, look_again
from ..acquire.charge import ONE_WRITE_MILLI, Charge, LimitsDiffer, Shortage, Taken, shortage
from ..acquire.unknown import find_out
from ..scope import Scope
from .flight import fly
from .queue import Rider

TakeHere = Callable[[Scope, Charge, bool], Awaitable[Taken | Shortage]]
Group = Sequence[tuple[Rider, Charge]]
# Each flight after the second means that another client has changed the item meanwhile.
_MAX_FLIGHTS = 16


async def take_joined(
    scope: Scope, charge: Charge, speculative: bool, take_here: TakeHere
) -> Taken | Shortage:
    """Charge one item, together with whoever else of this process charges it now."""

    async def together(riders: Sequence[Rider]) -> None:
        await _take_together(scope, riders, speculative, take_here)

    def can_ride(rider: Rider) -> bool:
        other = rider.load
        return isinstance(other, Charge) and other.limits.fingerprint == charge.limits.fingerprint

    def alone() -> Awaitable[Taken | Shortage]:
        return take_here(scope, charge, speculative)

    flown = await fly(scope, charge.address, charge, alone, together, can_ride)
    outcome = flown.outcome if isinstance(flown, Rider) else flown
    assert isinstance(outcome, Taken | Shortage)
    return outcome


async def _take_together(
    scope: Scope, riders: Sequence[Rider], speculative: bool, take_here: TakeHere
) -> None:
    waiting = [(rider, rider.load) for rider in riders if isinstance(rider.load, Charge)]
    flying = _likely(scope, waiting)
    boarded_ms = scope.io.now_ms()
    for _, charge in waiting:
        charge.begun_ms = boarded_ms
    for _ in range(_MAX_FLIGHTS):
        try:
            # Others are concerned by what even one finds out.
            joint = flying[0][1] if len(waiting) == 1 else _joint([c for _, c in flying])
            outcome = await _fly(scope, joint, flying, speculative, take_here)
        except LimitsDiffer:
            flying = waiting = await _look_again(scope, waiting)
            if len({charge.limits.fingerprint for _, charge in waiting}) == 1:
                continue
            break
        if isinstance(outcome, Taken):
            waiting = [(rider, charge) for rider, charge in waiting if rider.outcome is None]
        # Nobody is refused before the item has been seen to be short for it, since it came.
        left = _left(outcome, boarded_ms)
        flying = _fitting(waiting, left)
        if not flying:
            for rider, charge in waiting:
                rider.outcome = shortage(charge, [left])
            return
    for rider, charge in waiting:
        rider.outcome = await take_here(scope, charge, speculative)


async def _look_again(scope: Scope, waiting: Group) -> list[tuple[Rider, Charge]]:
    """Go by the limits that are in force now. Returns those who still can."""
    resolution = await look_again(scope, waiting[0][1])
    for rider, charge in waiting:
        try:
            adopt(scope, charge, resolution)
        except ValidationError as error:
            # It asks for a limit that is gone, which concerns none of the others.
            rider.outcome = error
    return [(rider, charge) for rider, charge in waiting if rider.outcome is None]


def _likely(scope: Scope, waiting: Group) -> Group:
    """Who to begin with: those for whom the item had enough when it was last seen, or all of
    them if that says nothing."""
    _, first = waiting[0]
    image = scope.images.get(first.address)
    if image is None or image.fingerprint != first.limits.fingerprint:
        return waiting
    return _fitting(waiting, refill(image, scope.io.now_ms())) or waiting


async def _fly(
    scope: Scope, joint: Charge, group: Group, speculative: bool, take_here: TakeHere
) -> Taken | Shortage:
    """Charge all of them at once, or none."""
    try:
        outcome = await take_here(scope, joint, speculative)
    except BaseException as error:
        if joint.is_joint:
            if isinstance(error, StorageUnavailable):
                # Once for all: while each asked for itself, the item would forget the write.
                await find_out(scope, joint)
            _share_what_is_known(joint, group)
        raise
    if isinstance(outcome, Taken):
        _share(joint, group)
    return outcome


def _left(outcome: Taken | Shortage, at_ms: int) -> Bucket:
    """The item as a flight found or left it, as of some time."""
    shards = outcome.charge.shards if isinstance(outcome, Taken) else outcome.shards
    return refill(shards[0], at_ms)


def _fitting(group: Group, now: Bucket) -> Group:
    """Those whom the item can serve, in the order in which they came."""
    fitting = []
    for rider, charge in group:
        asked_milli = {n: m for n, m in charge.intent.takes_milli.items() if n != WCU}
        if covers(now, asked_milli):
            now = taken_from(now, asked_milli, 0)
            fitting.append((rider, charge))
    return fitting


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
        begun_ms=first.begun_ms,
    )


def _share(joint: Charge, group: Group) -> None:
    """Give each its own part of what was taken together."""
    for rider, charge in group:
        intent = charge.intent
        charge.address = joint.address
        charge.entries = [charge.entry(joint.address, intent.takes_milli, intent.acquires)]
        charge.shards = joint.shards
        rider.outcome = Taken(charge)


def _share_what_is_known(joint: Charge, group: Group) -> None:
    """Let each give back its part of what landed, and find out about the rest for itself."""
    for _, charge in group:
        charge.entries = [_part(charge, entry) for entry in joint.entries]
        charge.sent = [(operation, _part(charge, entry)) for operation, entry in joint.sent]


def _part(charge: Charge, whole: Entry) -> Entry:
    return charge.entry(whole.address, charge.intent.takes_milli, charge.intent.acquires)
