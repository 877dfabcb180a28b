"""The planner chooses the next write, given an image of the bucket. It sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .apply import adjusted
from .bucket import (
    FIRST_ITEM_OUTLASTS_S,
    Bucket,
    at,
    carries,
    cell_of,
    covers,
    evolve,
    full_bucket,
    set_back,
    take_tokens,
    time_to_fill_ms,
)
from .idempotency import fence_past
from .limit import LimitSet
from .rates import Rate
from .shards import MAX_SHARDS
from .validation import SET_BACK, WCU
from .writes import Adjust, Create, Fill, Refill, Take, Write

_STOCK_MS = 500
# A taking counts on what was gained for at most so long after a refill. Without this bound, an item
# that is written too often would go unnoticed: only a refill cuts its allowance off at the ceiling.
_UNREFILLED_FOR_MS = 1000


class Intent(NamedTuple):
    """An intent says what a caller wants from one bucket, and how the bucket is to be stamped.

    `metered`: the bucket counts its own writes, too (`bucket.WCU_CELL`).
    """

    limits: LimitSet
    takes_milli: Mapping[str, int]
    acquires: int
    ttl_seconds: int | None
    parent_id: str | None
    cascade: bool
    metered: bool = False


@dataclass(slots=True)
class Short:
    """The bucket, brought up to date, cannot cover the intent."""

    bucket: Bucket


@dataclass(slots=True)
class Crowded:
    """The bucket could cover the intent, but is written more often than its store allows, and
    should be split."""

    bucket: Bucket


def plan_first(intent: Intent, image: Bucket | None, operation: str, now_ms: int) -> Write:
    """Return the write to begin with, from the last image that this process has seen, if any.

    A stale image costs a second call at most: the store refuses a write that does not fit its
    bucket item, and answers with the item. A bucket without an image is guessed to be full: most
    buckets are, most of the time.
    """
    if image is None or image.fingerprint != intent.limits.fingerprint:
        guess = full_bucket(intent.limits, 0, metered=intent.metered)
        planned = plan(intent, guess, operation, now_ms)
        return (
            planned if isinstance(planned, Fill) else _take_unseen(intent, guess, operation, now_ms)
        )
    planned = plan(intent, image, operation, now_ms)
    if isinstance(planned, Short | Crowded):
        return _take_unseen(intent, image, operation, now_ms)
    return planned


def _take_unseen(intent: Intent, guess: Bucket, operation: str, now_ms: int) -> Take:
    return Take(
        operation,
        now_ms,
        intent.limits.fingerprint,
        intent.takes_milli,
        intent.acquires,
        guess.refilled_at_ms,
        None,
        intent.takes_milli,
        _roofs_milli(intent, guess, now_ms),
        guess.shard_count,
        unexpired=True,
        generation=guess.generation,
    )


def _roofs_milli(intent: Intent, bucket: Bucket, now_ms: int) -> dict[str, int]:
    """Return the roof of each limit that is charged."""
    since_ms = bucket.refilled_at_ms
    until_ms = max(since_ms, now_ms)
    known = bucket.cells.keys() - {WCU}
    return {
        name: bucket.rate(name).roof_milli(since_ms, until_ms)
        for name in intent.takes_milli
        if name in known
    }


def plan_create(intent: Intent, operation: str, now_ms: int) -> Create | Short:
    """Plan on no bucket: a new one starts full."""
    full = full_bucket(intent.limits, now_ms, metered=intent.metered)
    fresh = stamped(intent, full, now_ms)
    if not covers(fresh, intent.takes_milli):
        return Short(fresh)
    return Create(operation, now_ms, take_tokens(fresh, intent.takes_milli, intent.acquires))


def plan(
    intent: Intent, bucket: Bucket, operation: str, now_ms: int
) -> Take | Fill | Refill | Short | Crowded:
    """Plan on an image of the bucket."""
    planned = _plan_take(intent, bucket, operation, now_ms) or _plan_fill(
        intent, bucket, operation, now_ms
    )
    if planned is not None:
        return planned
    current = at(bucket, intent.limits, now_ms, metered=intent.metered)
    if not covers(current, intent.takes_milli):
        unmetered = _unmetered(intent)
        if not covers(current, unmetered.takes_milli):
            return Short(current)
        if gains_by_a_split(current, unmetered.takes_milli):
            return Crowded(current)
        return plan(unmetered, bucket, operation, now_ms)
    after = take_tokens(stamped(intent, current, now_ms), intent.takes_milli, intent.acquires)
    return Refill(operation, now_ms, bucket, after)


def _plan_fill(intent: Intent, bucket: Bucket, operation: str, now_ms: int) -> Fill | None:
    """Plan to take from a bucket that is full by now, whichever client used it last. That client is
    assumed to have taken about as much as this one, and a while ago."""
    if bucket.dormant or not carries(bucket, intent.limits, metered=intent.metered):
        return None
    takes_milli = intent.takes_milli
    now_ms = max(now_ms, bucket.refilled_at_ms)
    rates = {name: bucket.rate(name) for name in bucket.cells}
    by_ms = max(bucket.refilled_at_ms, now_ms - 2 * _usual_gap_ms(intent, bucket, rates))
    floors_milli, leaves_milli = {}, {}
    for name, rate in rates.items():
        floor_milli = rate.floor_milli(by_ms, now_ms)
        left_milli = rate.ceiling_milli - takes_milli.get(name, 0)
        if bucket.cells[name].tokens_milli < floor_milli or left_milli < 0:
            return None
        floors_milli[name] = floor_milli
        leaves_milli[name] = left_milli
    return Fill(
        operation,
        now_ms,
        bucket.fingerprint,
        takes_milli,
        intent.acquires,
        by_ms,
        floors_milli,
        leaves_milli,
        bucket.shard_count,
        _expires_at_s(intent, bucket, now_ms),
        intent.parent_id,
        intent.cascade,
        bucket.generation,
    )


def _usual_gap_ms(intent: Intent, bucket: Bucket, rates: Mapping[str, Rate]) -> int:
    """The time in which the bucket gains what was last missing, or what is asked."""
    gap_ms = 0
    for name, rate in rates.items():
        missing_milli = rate.ceiling_milli - bucket.cells[name].tokens_milli
        gain_milli = max(missing_milli, intent.takes_milli.get(name, 0))
        gap_ms = max(gap_ms, rate.time_to_gain_ms(gain_milli))
    return gap_ms


def _unmetered(intent: Intent) -> Intent:
    """Return the intent without what it pays for its own write."""
    takes_milli = {name: n for name, n in intent.takes_milli.items() if name != WCU}
    return intent._replace(takes_milli=takes_milli)


def gains_by_a_split(bucket: Bucket, takes_milli: Mapping[str, int]) -> bool:
    """Return whether a split lets the bucket be written more often. A bucket with the most shards
    cannot be split. An item that holds less than it gains in a while is held back by its limits,
    not by its writes, and its pieces would only have to be put together again."""
    return bucket.shard_count < MAX_SHARDS and all(
        cell.tokens_milli >= bucket.rate(name).most_gain_milli(0, _STOCK_MS)
        for name, cell in bucket.cells.items()
        if takes_milli.get(name)
    )


def _plan_take(intent: Intent, bucket: Bucket, operation: str, now_ms: int) -> Take | None:
    """Plan a taking that leaves the refill time alone, if the bounds and the balance allow it."""
    if bucket.fingerprint != intent.limits.fingerprint or bucket.is_expired(now_ms):
        return None
    since_ms = bucket.refilled_at_ms
    until_ms = max(since_ms, now_ms)
    is_stored = True
    roofs_milli = {}
    for name, amount_milli in intent.takes_milli.items():
        if name not in bucket.cells:
            return None
        tokens_milli = bucket.cells[name].tokens_milli
        if name == WCU:
            roof_milli = tokens_milli
        else:
            roof_milli = bucket.rate(name).roof_milli(since_ms, until_ms)
            roofs_milli[name] = roof_milli
        if amount_milli and tokens_milli > roof_milli:
            return None
        is_stored = is_stored and (not amount_milli or amount_milli <= tokens_milli)
    if not is_stored:
        return _plan_take_gained(intent, bucket, roofs_milli, operation, now_ms)
    return Take(
        operation,
        now_ms,
        bucket.fingerprint,
        intent.takes_milli,
        intent.acquires,
        bucket.refilled_at_ms,
        None,
        intent.takes_milli,
        roofs_milli,
        bucket.shard_count,
        generation=bucket.generation,
    )


def _plan_take_gained(
    intent: Intent, bucket: Bucket, roofs_milli: Mapping[str, int], operation: str, now_ms: int
) -> Take | None:
    """Plan a taking that counts on what was gained since the last refill."""
    since_ms = bucket.refilled_at_ms
    until_ms = max(since_ms, now_ms)
    if until_ms - since_ms > _UNREFILLED_FOR_MS or not _outlasts(intent, bucket, now_ms):
        return None
    floors_milli = {}
    for name, amount_milli in intent.takes_milli.items():
        if amount_milli:
            gain_milli = bucket.rate(name).least_gain_milli(since_ms, until_ms)
            floors_milli[name] = amount_milli - gain_milli
            if bucket.cells[name].tokens_milli < floors_milli[name]:
                return None
    return Take(
        operation,
        now_ms,
        bucket.fingerprint,
        intent.takes_milli,
        intent.acquires,
        bucket.refilled_at_ms,
        bucket.refilled_at_ms,
        floors_milli,
        roofs_milli,
        bucket.shard_count,
        generation=bucket.generation,
    )


def _outlasts(intent: Intent, bucket: Bucket, now_ms: int) -> bool:
    """Return whether the item lives until it would be full, were it empty now."""
    if bucket.expires_at_s is None:
        return True
    return now_ms + intent.limits.seconds_to_fill * 1000 <= bucket.expires_at_s * 1000


def plan_restamp(intent: Intent, bucket: Bucket, operation: str, now_ms: int) -> Refill:
    """Plan to put the intent's limits in force, and to take nothing."""
    current = at(bucket, intent.limits, now_ms, metered=intent.metered)
    after = stamped(intent, current, now_ms)
    return Refill(operation, now_ms, bucket, after)


def plan_set_back(bucket: Bucket, operation: str, now_ms: int) -> Refill:
    """Plan to undo a refill time that is ahead of the store's clock."""
    return Refill(operation, now_ms, bucket, set_back(bucket, now_ms))


def stamped(intent: Intent, bucket: Bucket, now_ms: int) -> Bucket:
    """Return the bucket with the intent's owner and lifetime."""
    expires_at_s = _expires_at_s(intent, bucket, now_ms)
    if expires_at_s is not None:
        expires_at_s = max(expires_at_s, useful_until_s(bucket))
    stamps = (expires_at_s, intent.parent_id, intent.cascade)
    if stamps == (bucket.expires_at_s, bucket.parent_id, bucket.cascade):
        return bucket
    return evolve(bucket, bucket.cells, stamps=stamps)


def _expires_at_s(intent: Intent, bucket: Bucket, now_ms: int) -> int | None:
    """Return the end of an item's lifetime: by then it is full, as it would be if made anew. Item 0
    outlasts its siblings, because it tells which of them are in force."""
    if intent.ttl_seconds is None:
        return None
    is_first_of_several = bucket.shard == 0 and bucket.shard_count > 1
    longer_s = FIRST_ITEM_OUTLASTS_S if is_first_of_several else 0
    return -(-now_ms // 1000) + intent.ttl_seconds + longer_s


def rates_charged(deltas_milli: Mapping[str, int], intents: Sequence[Intent]) -> Mapping[str, Rate]:
    """Return the rates of the limits that a correction of charges with these intents charges."""
    return {
        limit.name: cell_of(limit).rate
        for intent in intents
        for limit in intent.limits.limits
        if deltas_milli.get(limit.name, 0) > 0
    }


def plan_anew(write: Adjust, intent: Intent) -> Adjust:
    """Plan that a correction which charges makes the bucket anew where it has gone: had it stayed,
    it would be full by now. A correction that only gives back makes nothing."""
    if not write.rates:
        return write
    full = full_bucket(intent.limits, write.at_ms, metered=intent.metered)
    made = stamped(intent, adjusted(write, full), write.at_ms)
    return write._replace(anew=made._replace(fence=fence_past(write.operation)))


def plan_outlasting(bucket: Bucket, operation: str, now_ms: int) -> Refill | None:
    """Plan a longer lifetime for an item that would expire before its debt is paid. Without this,
    the bucket would come back full."""
    until_s = useful_until_s(bucket)
    if bucket.expires_at_s is None or bucket.expires_at_s >= until_s:
        return None
    return Refill(operation, now_ms, bucket, bucket._replace(expires_at_s=until_s))


def plan_return(write: Refill) -> Create:
    """Plan to put an item back that has expired before it could be given a longer lifetime. Its
    consumption has been counted already."""
    bucket = write.after
    cells = {name: cell._replace(consumed_milli=0) for name, cell in bucket.cells.items()}
    returned = bucket._replace(cells=cells, recent=(), acquires=0)
    return Create(write.operation, write.at_ms, returned)


def useful_until_s(bucket: Bucket) -> int:
    """Return when debts are paid and dormant limits are full: from then on the item is as good as a
    new one. The usual lifetime only lasts from empty to full, for limits in force."""
    open_ms = [
        time_to_fill_ms(bucket, name)
        for name, cell in bucket.cells.items()
        if name != SET_BACK and (cell.tokens_milli < 0 or name in bucket.dormant)
    ]
    return -(-(bucket.refilled_at_ms + max(open_ms, default=0)) // 1000)
