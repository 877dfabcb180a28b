"""Writing to one bucket item: plan from its last image, send, and follow the answer."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from ...core.bucket import Bucket, BucketAddress, has_leapt, is_ahead
from ...core.exceptions import StorageUnavailable
from ...core.log_fields import log_fields
from ...core.planner import (
    Crowded,
    Intent,
    Short,
    plan,
    plan_anew,
    plan_create,
    plan_first,
    plan_outlasting,
    plan_restamp,
    plan_return,
    plan_set_back,
    rates_charged,
)
from ...core.validation import WCU
from ...core.writes import Absent, Adjust, Granted, Outcome, Refused, Write
from ..config.registration import confirm_registration
from ..config.resolve import resolve_afresh
from ..scope import Scope
from ..shards.debt import level_debt, may_owe, spread_correction
from ..shards.holes import make_shard, read_whole
from ..shards.items import Items, draw, holder, is_upkeep_due, prefer, split_shard
from .charge import (
    ONE_WRITE_MILLI,
    Correction,
    LimitsDiffer,
    LimitsFrom,
    Progress,
    Shortage,
    Taken,
    adopt,
    paying,
    shortage,
)
from .marks import new_operation
from .send import send, send_charge, send_owed, step_back

logger = logging.getLogger("zae_limiter")
# Each lost race means that another client won it; a bound keeps it finite.
_MAX_ATTEMPTS = 96
_PATIENCE = 3
# Each further attempt means that another client has refilled the item, which prolongs it as well.
_MAX_PROLONGATIONS = 4
# Each further attempt means that other clients have split or merged the item meanwhile.
_MAX_MOVES = 8


async def take_from_item(scope: Scope, progress: Progress) -> Taken | Shortage:
    """Charge one item.

    All writes that are tried for it have one id: if one of them lands late, after it was
    given up for lost, the item knows that it has been charged already.
    """
    charge = progress.charge
    progress.operation = progress.new_operation(scope)
    writes = 0
    outcome: Outcome
    image = scope.local.image(progress.address)
    if charge.speculative and not is_damaged(scope, image):
        first = plan_first(charge.intent, image, progress.operation, progress.as_of_ms)
        outcome, writes = await _send(scope, progress, first), 1
    else:
        outcome = await _look(scope, progress.address)
    if isinstance(outcome, Absent) and image is not None:
        # An item that goes before its time may have been purged with its namespace.
        await confirm_registration(scope, is_cached=image.is_expired(scope.io.now_ms()))
    for attempt in range(_MAX_ATTEMPTS):
        if isinstance(outcome, Granted):
            return Taken(progress)
        if attempt >= _PATIENCE and isinstance(outcome, Refused):
            # Too many clients want this item at once.
            await step_back(scope, attempt - _PATIENCE)
            outcome = await _look(scope, progress.address)
        planned = await _plan(scope, progress, outcome, writes + 1)
        match planned:
            case Shortage():
                return planned
            case Refused() | Absent():
                outcome = planned
            case _:
                outcome, writes = await _send(scope, progress, planned), writes + 1
    raise StorageUnavailable(f"{progress.address} is too contended")


def _send(scope: Scope, progress: Progress, write: Write) -> Coroutine[Any, Any, Outcome]:
    charge = progress.charge
    intent = charge.intent
    entry = charge.entry(progress.address, intent.takes_milli, intent.acquires)
    return send_charge(scope, progress, entry, write)


async def _look(scope: Scope, address: BucketAddress) -> Refused | Absent:
    bucket = (await scope.store.buckets.read([address])).get(address)
    outcome = Absent() if bucket is None else Refused(bucket)
    scope.local.remember(address, outcome)
    return outcome


async def _plan(
    scope: Scope, progress: Progress, outcome: Refused | Absent, writes: int
) -> Write | Shortage | Refused | Absent:
    """Decide what to do next: send a write, give up, or look again at another image. The write
    pays for itself and for those that were lost before it."""
    if isinstance(outcome, Absent) or _is_remnant(scope, progress.address, outcome.bucket):
        return await _plan_absent(scope, progress, writes)
    bucket = await set_right(scope, progress.address, outcome.bucket)
    if bucket.fingerprint != progress.charge.limits.fingerprint:
        await refresh_limits(scope, progress)
    intent = paying(progress.charge.intent, writes)
    decided = plan(intent, bucket, progress.operation, _as_of_ms(scope, progress, bucket))
    match decided:
        case Short():
            other_limits = bucket.fingerprint != intent.limits.fingerprint
            if other_limits or has_leapt(bucket, decided.bucket):
                await restamp(scope, progress.address, intent, bucket)
            return shortage(progress, [decided.bucket])
        case Crowded():
            return await _spread(scope, progress, bucket)
        case _:
            return decided


def is_damaged(scope: Scope, image: Bucket | None) -> bool:
    """Whether an item's refill time is ahead of anything that the store's clock can say now."""
    return image is not None and is_ahead(image, scope.io.now_ms() + scope.io.unsure_ms)


async def set_right(scope: Scope, address: BucketAddress, bucket: Bucket) -> Bucket:
    """The item, with its refill time set back to now if that was damaged."""
    if not is_damaged(scope, bucket):
        return bucket
    io, now_ms = scope.io, scope.io.now_ms()
    outcome = await send(scope, address, plan_set_back(bucket, io.operation_id(), now_ms))
    if isinstance(outcome, Absent):
        return bucket
    if isinstance(outcome, Granted):
        ahead_s = (bucket.refilled_at_ms - now_ms) / 1000
        logger.warning(
            "The refill time of %s was %.0f s ahead and has been set back: some clock is wrong",
            address,
            ahead_s,
            extra=log_fields("clock_set_back", address=address, ahead_s=ahead_s),
        )
    return outcome.bucket


def _as_of_ms(scope: Scope, progress: Progress, bucket: Bucket) -> int:
    """The time at which the item is charged: when the request came. So refills by other clients
    meanwhile cannot be in its way. But an item that may expire at any moment has to be renewed."""
    now_ms = scope.io.now_ms()
    return now_ms if bucket.is_expired(now_ms) else progress.as_of_ms


def _is_remnant(scope: Scope, address: BucketAddress, bucket: Bucket) -> bool:
    return not scope.local.is_in_force(address, bucket)


async def _plan_absent(scope: Scope, progress: Progress, writes: int) -> Write | Shortage | Refused:
    local = scope.local
    if progress.address.shard or local.shard_count(progress.address) > 1:
        made = await make_shard(scope, progress.address)
        if made is not None:
            progress.address, bucket = made
            prefer(scope, progress.address)
            return Refused(bucket)
        progress.address = progress.address.home
        local.splits.discard(progress.address)
    intent = paying(progress.charge.intent, writes)
    planned = plan_create(intent, progress.operation, scope.io.now_ms())
    return shortage(progress, [planned.bucket]) if isinstance(planned, Short) else planned


async def _spread(scope: Scope, progress: Progress, bucket: Bucket) -> Refused | Absent:
    """Split an item that is written too often, and go on at one of the two."""
    await split_shard(scope, progress.address, bucket)
    progress.address = draw(scope, progress.address)
    return await _look(scope, progress.address)


async def refresh_limits(scope: Scope, progress: Progress) -> None:
    """Read the limits once more when the item carries others: ours may be stale."""
    charge = progress.charge
    if charge.limits_from is not LimitsFrom.CACHE:
        return
    if charge.is_joint:
        raise LimitsDiffer
    home = charge.home
    adopt(scope, progress, await resolve_afresh(scope, home.entity_id, home.resource))


async def restamp(scope: Scope, address: BucketAddress, intent: Intent, bucket: Bucket) -> None:
    """Put our limits in force though nothing is taken; losing a race here loses nothing."""
    io = scope.io
    with suppress(StorageUnavailable):
        await send(scope, address, plan_restamp(intent, bucket, io.operation_id(), io.now_ms()))


async def adjust_item(scope: Scope, address: BucketAddress, correction: Correction) -> Outcome:
    """Correct one item, whatever its balance; or the items that hold its part of the bucket now."""
    try:
        corrected = await _adjust_holder(scope, address, correction)
    finally:
        # Not before: a refusal that comes back meanwhile may be older than the correction.
        scope.local.refusals.correct(address.home)
    for each, bucket in corrected.items():
        if _may_expire_early(bucket):
            await _prolong(scope, each, bucket)
    return Granted(next(iter(corrected.values()))) if corrected else Absent()


async def _adjust_holder(scope: Scope, address: BucketAddress, correction: Correction) -> Items:
    """Correct the item that holds this shard's part now: siblings may have been merged. Where the
    bucket has gone, a charge makes it anew with the debt. Returns the items that were corrected."""
    if is_upkeep_due(scope, address.home):
        # A generation that is no longer in force would take the correction along.
        with suppress(StorageUnavailable):
            await read_whole(scope, address.home)
    address = _while_split(scope, address)
    for _ in range(_MAX_MOVES):
        if _may_owe(scope, address, correction):
            corrected = await spread_correction(scope, address, correction)
            if corrected is not None:
                return corrected
            # Without this, items that turned out to be merged would take the correction along.
            address = _while_split(scope, address)
        outcome = await _adjust(scope, address, correction)
        if isinstance(outcome, Granted):
            leveled = await _level_if_in_debt(scope, address, outcome.bucket, correction)
            return leveled or {address: outcome.bucket}
        found = await read_whole(scope, address.home) if _is_split(scope, address) else {}
        if not found:
            outcome = await _adjust(scope, address.home, correction, is_gone=True)
            return {} if isinstance(outcome, Absent) else {address.home: outcome.bucket}
        address = holder(address.shard, found) or min(found)
    raise StorageUnavailable(f"{address} is too contended")


def _while_split(scope: Scope, address: BucketAddress) -> BucketAddress:
    """Return the address, or that of the only item where the bucket is not split."""
    return address.home if scope.local.shard_count(address) == 1 else address


def _is_split(scope: Scope, address: BucketAddress) -> bool:
    return bool(address.shard) or scope.local.shard_count(address) > 1


def _may_owe(scope: Scope, address: BucketAddress, correction: Correction) -> bool:
    image = scope.local.image(address)
    return image is not None and may_owe(image, correction.deltas_milli, scope.io.now_ms())


async def _adjust(
    scope: Scope, address: BucketAddress, correction: Correction, *, is_gone: bool = False
) -> Outcome:
    io, deltas_milli = scope.io, correction.deltas_milli
    if scope.store.buckets.metered:
        deltas_milli = {**deltas_milli, WCU: ONE_WRITE_MILLI}
    now_ms, seen = io.now_ms(), scope.local.image(address)
    known = scope.local.splits.get(address.home)
    write = Adjust(
        new_operation(scope, address),
        now_ms,
        deltas_milli,
        correction.acquires,
        seen,
        rates=rates_charged(deltas_milli, correction.intents),
        generation=known.generation if known is not None and address.shard else None,
    )
    is_expired = seen is None or seen.is_expired(now_ms)
    if correction.intents and (is_gone or (is_expired and not _is_split(scope, address))):
        write = plan_anew(write, correction.intents[-1])
        if write.anew is not None:
            # Without this, a bucket would come back in a namespace that was purged meanwhile.
            await confirm_registration(scope, is_cached=False)
    return await send_owed(scope, address, write)


async def _level_if_in_debt(
    scope: Scope, address: BucketAddress, bucket: Bucket, correction: Correction
) -> Items:
    """Share a debt that the last image of the item did not tell of. Whatever comes of this, the
    correction has been made."""
    given_back_milli = {name: max(0, -delta) for name, delta in correction.deltas_milli.items()}
    if may_owe(bucket, given_back_milli, scope.io.now_ms()):
        with suppress(StorageUnavailable):
            return await level_debt(scope, address.home)
    return {}


def _may_expire_early(bucket: Bucket) -> bool:
    """Only an item that owes something, or holds limits that are not in force, can."""
    return bool(bucket.dormant) or any(cell.tokens_milli < 0 for cell in bucket.cells.values())


async def _prolong(scope: Scope, address: BucketAddress, bucket: Bucket) -> None:
    """Let an item outlast its debt. Whatever comes of this, the correction has been made."""
    io = scope.io
    with suppress(StorageUnavailable):
        for _ in range(_MAX_PROLONGATIONS):
            longer = plan_outlasting(bucket, io.operation_id(), io.now_ms())
            if longer is None:
                return
            outcome = await send(scope, address, longer)
            if isinstance(outcome, Absent):
                # The item has expired with its debt, just now.
                outcome = await send(scope, address, plan_return(longer))
            assert not isinstance(outcome, Absent)
            bucket = outcome.bucket
