"""Waiting for tokens, first come first served within a process."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ...core.bucket import Bucket, BucketAddress, covers, refill, take_tokens
from ...core.judge import NEVER, judge_shards, statuses
from ...core.rate_limit_exceeded import RateLimitExceeded
from ..coalesce.batch import read_items
from ..receipts.charge import charge_with_receipt
from ..receipts.repeat import find_repeat
from ..scope import Scope
from .acquire import Charged, charge_levels
from .charge import Charge, current_items
from .looks import Looks
from .refusals import AcquireRefused
from .request import Request, plan_charges
from .wait_queue import Place

T = TypeVar("T")
# A caller that cannot wait for tokens at all has to wait for the store's answer.
_LEAST_FOR_STORE_S = 0.08


@dataclass(frozen=True, slots=True)
class _Blocked:
    """The bucket that an attempt was short of, how long its refill takes, and the count of
    notifications at the time of the attempt."""

    address: BucketAddress
    wait_ms: float
    notifications: int


@dataclass(frozen=True, slots=True)
class _Waiter:
    scope: Scope
    request: Request
    deadline_ms: int
    patience_s: float

    def left_ms(self) -> int:
        return max(0, self.deadline_ms - self.scope.io.now_ms())

    def ask(self, flow: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Run a flow that asks the store, within the time that is left for that."""
        longest_s = self.scope.settings.patience_s
        left_s = min(longest_s, max(_LEAST_FOR_STORE_S, self.left_ms() / 1000))
        return self.scope.io.within(flow, left_s, min(longest_s, self.patience_s))


async def charge_in_time(scope: Scope, request: Request, timeout_s: float) -> Charged:
    """Charge every level, waiting at most this long for tokens.

    A request that can never fit, or cannot fit in time, is refused at once. Requests of this
    process that wait for the same bucket are served in the order in which they came.
    """
    deadline_ms = scope.io.now_ms() + round(timeout_s * 1000)
    waiter = _Waiter(scope, request, deadline_ms, max(timeout_s, _LEAST_FOR_STORE_S))
    planned = await waiter.ask(plan_charges(scope, request))
    busy = scope.local.wait_queues.busy(charge.home for charge in planned)
    notifications = scope.local.wait_queues.notifications
    outcome: Charged | _Blocked
    if busy:
        outcome = await waiter.ask(_unless_repeat(waiter, _Blocked(busy, 0, notifications)))
    else:
        outcome = await waiter.ask(_attempt(waiter))
    waited = isinstance(outcome, _Blocked)
    while isinstance(outcome, _Blocked):
        outcome = await _queue(waiter, outcome)
    scope.local.counts.waited += waited
    return outcome


async def _attempt(waiter: _Waiter) -> Charged | _Blocked:
    scope = waiter.scope
    planned = await plan_charges(scope, waiter.request)
    notifications = scope.local.wait_queues.notifications
    try:
        if waiter.request.receipt is not None:
            return await charge_with_receipt(scope, waiter.request, planned)
        return await charge_levels(scope, planned)
    except AcquireRefused as refusal:
        if refusal.worst.wait_ms > waiter.left_ms():
            raise refusal.to_error() from None
        blocked = _Blocked(refusal.worst.progress.charge.home, refusal.worst.wait_ms, notifications)
    return await _unless_repeat(waiter, blocked)


async def _unless_repeat(waiter: _Waiter, blocked: _Blocked) -> Charged | _Blocked:
    """Find out before each wait whether another caller has charged the key of the request
    meanwhile: there would be nothing to wait for."""
    return await find_repeat(waiter.scope, waiter.request) or blocked


async def _queue(waiter: _Waiter, blocked: _Blocked) -> Charged | _Blocked:
    """Wait at one bucket until served there, or until another bucket is what blocks."""
    queues, signal = waiter.scope.local.wait_queues, waiter.scope.io.signal()
    place = Place(blocked.address, waiter.request.wanted_milli, signal)
    is_behind = queues.join(place)
    try:
        if is_behind:
            await waiter.ask(_refuse_if_hopeless(waiter, place))
        await _wait_for_turn(waiter, place)
        stale = is_behind or queues.notified_since(place.address, blocked.notifications)
        outcome = await _serve(waiter, place, 0 if stale else blocked.wait_ms)
        while outcome is None:
            place.in_vain = True
            await _wait_for_turn(waiter, place)
            outcome = await _serve(waiter, place, 0)
        return outcome
    finally:
        queues.leave(place)


async def _wait_for_turn(waiter: _Waiter, place: Place) -> None:
    while True:
        # A new signal before each look: a notification right after the look is not missed.
        place.signal = waiter.scope.io.signal()
        if _is_turn(waiter, place):
            return
        if not waiter.left_ms():
            await waiter.ask(_refuse_if_hopeless(waiter, place))
            return
        await place.signal.wait(waiter.left_ms() / 1000)


def _is_turn(waiter: _Waiter, place: Place) -> bool:
    """True for the first in the queue, and for one behind others that are being served, if the
    bucket has enough for all of them: one write then serves them together, in their order."""
    local = waiter.scope.local
    if local.wait_queues.is_first(place):
        return True
    if place.in_vain:
        # The image is not what the store holds: without this, the waiter would try for ever.
        return False
    trying_milli = local.wait_queues.trying_ahead(place)
    image = local.images.get(place.address)
    if trying_milli is None or image is None or local.shard_count(place.address) > 1:
        return False
    needed_milli = {n: a + trying_milli.get(n, 0) for n, a in place.takes_milli.items()}
    known_milli = {n: amount for n, amount in needed_milli.items() if n in image.cells}
    return covers(refill(image, waiter.scope.io.now_ms()), known_milli)


async def _serve(waiter: _Waiter, place: Place, wait_ms: float) -> Charged | _Blocked | None:
    """Wait for the refill or for a notification, and try. None when it was tried in vain behind
    others: they come first."""
    queues = waiter.scope.local.wait_queues
    while True:
        if wait_ms:
            await place.signal.wait(min(wait_ms, waiter.left_ms()) / 1000)
        # A new signal before each attempt: a change during the attempt is not missed.
        place.signal = waiter.scope.io.signal()
        queues.try_now(place, is_trying=True)
        outcome = await waiter.ask(_look_and_attempt(waiter))
        if not isinstance(outcome, _Blocked) or outcome.address != place.address:
            return outcome
        queues.try_now(place, is_trying=False)
        if not queues.is_first(place):
            return None
        wait_ms = outcome.wait_ms


async def _look_and_attempt(waiter: _Waiter) -> Charged | _Blocked:
    blocked = await _look(waiter)
    return await (_attempt(waiter) if blocked is None else _unless_repeat(waiter, blocked))


async def _look(waiter: _Waiter) -> _Blocked | None:
    """Find out which level would block an attempt, without charging any of them: tokens that
    are given back wake other waiters, whose attempts would wake this one in turn."""
    notifications = waiter.scope.local.wait_queues.notifications
    planned = await plan_charges(waiter.scope, waiter.request)
    if len(planned) == 1:
        return None
    waits_ms = {charge.home: await _wait_ms(waiter, charge) for charge in planned}
    address = max(waits_ms, key=waits_ms.__getitem__)
    return _Blocked(address, waits_ms[address], notifications) if waits_ms[address] else None


async def _refuse_if_hopeless(waiter: _Waiter, place: Place) -> None:
    """Refuse when the bucket cannot serve the waiters ahead and this request in time, or another
    level cannot serve this request."""
    for charge in await plan_charges(waiter.scope, waiter.request):
        await _wait_ms(waiter, charge, place)


async def _wait_ms(waiter: _Waiter, charge: Charge, place: Place | None = None) -> float:
    """Compute how long one level makes this request wait, after the waiters ahead if they queue
    at this level; a wait beyond the deadline is refused."""
    looks, takes_milli = Looks(waiter.scope), charge.intent.takes_milli
    while True:
        shards = await _read_behind(waiter, charge, place)
        wait_ms = judge_shards(shards, takes_milli).wait_ms
        if wait_ms <= waiter.left_ms():
            return wait_ms
        if wait_ms == NEVER or not await looks.again(shards):
            break
    entity_id, resource = charge.home.entity_id, charge.home.resource
    raise RateLimitExceeded(statuses(entity_id, resource, shards, charge.limits, takes_milli))


async def _read_behind(waiter: _Waiter, charge: Charge, place: Place | None) -> list[Bucket]:
    """Read the items of a level, less what the waiters ahead will take if they queue there."""
    found = await read_items(waiter.scope, charge.home)
    shards = current_items(charge, list(found.values()), waiter.scope.io.now_ms())
    if place is None or place.address != charge.home:
        return shards
    # Summed up after the items were read: a waiter that was served before does not count.
    return _without(shards, waiter.scope.local.wait_queues.ahead_milli(place))


def _without(shards: list[Bucket], ahead_milli: Mapping[str, int]) -> list[Bucket]:
    """Take away what the waiters ahead will take; it does not matter from which item."""
    first, *rest = shards
    known_milli = {n: amount for n, amount in ahead_milli.items() if n in first.cells}
    return [take_tokens(first, known_milli, 0), *rest]
