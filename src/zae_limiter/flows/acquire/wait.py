"""Waiting for tokens, first come first served within a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...core.bucket import Bucket, BucketAddress, take
from ...core.judge import judge_shards, statuses
from ...core.ledger import Ledger
from ...core.rate_limit_exceeded import RateLimitExceeded
from ..scope import Scope
from ..shards.items import read_all
from .acquire import Refusal, take_all
from .charge import Charge, view
from .request import Request, charges
from .wait_queue import Place

Served = tuple[list[Charge], Ledger]


@dataclass(frozen=True, slots=True)
class _Blocked:
    """The bucket that has to be waited for, and how long by its own account; and how many
    nudges there had been when that was found out."""

    address: BucketAddress
    wait_ms: float
    nudges: int


@dataclass(frozen=True, slots=True)
class _Waiter:
    scope: Scope
    request: Request
    deadline_ms: int
    speculative: bool

    def left_ms(self) -> int:
        return max(0, self.deadline_ms - self.scope.io.now_ms())


async def take_in_time(
    scope: Scope, request: Request, timeout_s: float, *, speculative: bool
) -> Served:
    """Charge every level, waiting at most this long for tokens.

    What can never fit, or cannot fit in time, is refused at once. Whoever waits for a bucket
    is served before those of this process who ask to wait for it later.
    """
    deadline_ms = scope.io.now_ms() + round(timeout_s * 1000)
    waiter = _Waiter(scope, request, deadline_ms, speculative)
    planned = await charges(scope, request)
    busy = scope.turnstiles.busy(charge.address for charge in planned)
    nudges = scope.turnstiles.nudges
    outcome: Served | _Blocked = _Blocked(busy, 0, nudges) if busy else await _attempt(waiter)
    while isinstance(outcome, _Blocked):
        outcome = await _queue(waiter, outcome)
    return outcome


async def _attempt(waiter: _Waiter) -> Served | _Blocked:
    scope = waiter.scope
    planned = await charges(scope, waiter.request)
    nudges = scope.turnstiles.nudges
    try:
        return planned, await take_all(scope, planned, speculative=waiter.speculative)
    except Refusal as refusal:
        if refusal.worst.wait_ms > waiter.left_ms():
            raise refusal.to_error() from None
        address = refusal.worst.charge.address.home
        return _Blocked(address, refusal.worst.wait_ms, nudges)


async def _queue(waiter: _Waiter, blocked: _Blocked) -> Served | _Blocked:
    """Wait at one bucket until served there, or until another bucket is what blocks."""
    scope = waiter.scope
    place = Place(blocked.address, waiter.request.wanted_milli, scope.io.signal())
    is_behind = scope.turnstiles.join(place)
    try:
        if is_behind:
            await _refuse_if_hopeless(waiter, place)
        await _wait_for_turn(waiter, place)
        stale = is_behind or scope.turnstiles.nudged_since(place.address, blocked.nudges)
        return await _serve(waiter, place, 0 if stale else blocked.wait_ms)
    finally:
        scope.turnstiles.leave(place)


async def _wait_for_turn(waiter: _Waiter, place: Place) -> None:
    while True:
        # A new signal before each look: one that is set after the look is not missed.
        place.signal = waiter.scope.io.signal()
        if waiter.scope.turnstiles.is_first(place):
            return
        if not waiter.left_ms():
            await _refuse_if_hopeless(waiter, place)
            return
        await place.signal.wait(waiter.left_ms() / 1000)


async def _serve(waiter: _Waiter, place: Place, wait_ms: float) -> Served | _Blocked:
    """First in the queue: wait for the refill, or for a nudge, and try."""
    while True:
        if wait_ms:
            await place.signal.wait(min(wait_ms, waiter.left_ms()) / 1000)
        # A new signal before each attempt: what changes while it is made is not missed.
        place.signal = waiter.scope.io.signal()
        place.is_trying = True
        outcome = await _look(waiter) or await _attempt(waiter)
        if not isinstance(outcome, _Blocked) or outcome.address != place.address:
            return outcome
        place.is_trying = False
        wait_ms = outcome.wait_ms


async def _look(waiter: _Waiter) -> _Blocked | None:
    """What would block an attempt at several levels, found out without charging any of them:
    what is given back wakes others, whose attempts would wake this one in turn."""
    nudges = waiter.scope.turnstiles.nudges
    planned = await charges(waiter.scope, waiter.request)
    if len(planned) == 1:
        return None
    waits_ms = {charge.address: await _wait_ms(waiter, charge) for charge in planned}
    address = max(waits_ms, key=waits_ms.__getitem__)
    return _Blocked(address, waits_ms[address], nudges) if waits_ms[address] else None


async def _refuse_if_hopeless(waiter: _Waiter, place: Place) -> None:
    """Refuse when the bucket cannot serve those ahead and this request in time, or another
    level cannot serve this request."""
    for charge in await charges(waiter.scope, waiter.request):
        await _wait_ms(waiter, charge, place)


async def _wait_ms(waiter: _Waiter, charge: Charge, place: Place | None = None) -> float:
    """How long one level makes this request wait, after those ahead if it is where the place
    is; too long is refused."""
    found = await read_all(waiter.scope, charge.address)
    shards = view(charge, list(found.values()), waiter.scope.io.now_ms())
    if place is not None and place.address == charge.address:
        # Asked for after the items were read, so that nobody counts who was served before.
        shards = _without(shards, waiter.scope.turnstiles.ahead_milli(place))
    takes_milli = charge.intent.takes_milli
    wait_ms = judge_shards(shards, takes_milli).wait_ms
    if wait_ms > waiter.left_ms():
        entity_id, resource = charge.address.entity_id, charge.address.resource
        raise RateLimitExceeded(statuses(entity_id, resource, shards, charge.limits, takes_milli))
    return wait_ms


def _without(shards: list[Bucket], ahead_milli: Mapping[str, int]) -> list[Bucket]:
    """What those ahead will take is missing somewhere; it does not matter at which item."""
    first, *rest = shards
    known_milli = {n: amount for n, amount in ahead_milli.items() if n in first.cells}
    return [take(first, known_milli, 0), *rest]
