"""Waiting for tokens, first come first served within a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.composite import BucketAddress, take
from ..core.exceptions import RateLimitExceeded
from ..core.judge import judge_shards, statuses
from ..core.ledger import Ledger
from .acquire import Refusal, take_all
from .cascade import Request, charges
from .charge import Charge, view
from .scope import Scope
from .shards import read_all
from .turnstile import Place

Served = tuple[list[Charge], Ledger]


@dataclass(frozen=True, slots=True)
class _Blocked:
    """The bucket that has to be waited for, and how long by its own account."""

    address: BucketAddress
    wait_ms: float


@dataclass(frozen=True, slots=True)
class _Waiter:
    scope: Scope
    request: Request
    deadline_ms: int
    speculative: bool

    def left_s(self) -> float:
        return max(0, self.deadline_ms - self.scope.io.now_ms()) / 1000


async def take_in_time(
    scope: Scope, request: Request, timeout_s: float, *, speculative: bool
) -> Served:
    """Charge every level, waiting at most this long for tokens.

    What can never fit, or cannot fit in time, is refused at once. Whoever waits for a bucket
    is served before those of this process who ask to wait for it later.
    """
    deadline_ms = scope.io.now_ms() + int(timeout_s * 1000)
    waiter = _Waiter(scope, request, deadline_ms, speculative)
    planned = await charges(scope, request)
    busy = scope.turnstiles.busy(charge.address for charge in planned)
    outcome: Served | _Blocked = _Blocked(busy, 0) if busy else await _attempt(waiter)
    while isinstance(outcome, _Blocked):
        outcome = await _queue(waiter, outcome)
    return outcome


async def _attempt(waiter: _Waiter) -> Served | _Blocked:
    scope = waiter.scope
    planned = await charges(scope, waiter.request)
    try:
        return planned, await take_all(scope, planned, speculative=waiter.speculative)
    except Refusal as refusal:
        if refusal.worst.wait_ms > waiter.left_s() * 1000:
            raise refusal.to_error() from None
        address = refusal.worst.charge.address._replace(shard=0)
        return _Blocked(address, refusal.worst.wait_ms)


async def _queue(waiter: _Waiter, blocked: _Blocked) -> Served | _Blocked:
    """Wait at one bucket until served there, or until another bucket is what blocks."""
    scope = waiter.scope
    place = Place(blocked.address, waiter.request.wanted_milli, scope.io.signal())
    ahead_milli = scope.turnstiles.join(place)
    try:
        if ahead_milli:
            await _refuse_if_hopeless(waiter, place, ahead_milli)
        await _wait_for_turn(waiter, place, ahead_milli)
        return await _serve(waiter, place, 0 if ahead_milli else blocked.wait_ms)
    finally:
        scope.turnstiles.leave(place)


async def _wait_for_turn(waiter: _Waiter, place: Place, ahead_milli: Mapping[str, int]) -> None:
    while True:
        # A new signal before each look: one that is set after the look is not missed.
        place.signal = waiter.scope.io.signal()
        if waiter.scope.turnstiles.is_first(place):
            return
        if not waiter.left_s():
            await _refuse_if_hopeless(waiter, place, ahead_milli)
            return
        await place.signal.wait(waiter.left_s())


async def _serve(waiter: _Waiter, place: Place, wait_ms: float) -> Served | _Blocked:
    """First in the queue: wait for the refill, or for a nudge, and try."""
    while True:
        if wait_ms:
            place.signal = waiter.scope.io.signal()
            await place.signal.wait(min(wait_ms / 1000, waiter.left_s()))
        outcome = await _attempt(waiter)
        if not isinstance(outcome, _Blocked) or outcome.address != place.address:
            return outcome
        wait_ms = outcome.wait_ms


async def _refuse_if_hopeless(
    waiter: _Waiter, place: Place, ahead_milli: Mapping[str, int]
) -> None:
    """Refuse when the bucket cannot serve those ahead and this request in time."""
    scope = waiter.scope
    planned = await charges(scope, waiter.request)
    charge = next((c for c in planned if c.address == place.address), None)
    if charge is None:
        return
    found = await read_all(scope, place.address)
    first, *rest = view(charge, list(found.values()), scope.io.now_ms())
    known_milli = {n: amount for n, amount in ahead_milli.items() if n in first.cells}
    # Whatever those ahead will take is missing somewhere; it does not matter at which item.
    shards = [take(first, known_milli, 0), *rest]
    if judge_shards(shards, charge.intent.takes_milli).wait_ms > waiter.left_s() * 1000:
        entity_id, resource = place.address.entity_id, place.address.resource
        raise RateLimitExceeded(
            statuses(entity_id, resource, shards, charge.limits, charge.intent.takes_milli)
        )
