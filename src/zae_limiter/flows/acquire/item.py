"""Charging one bucket: begin with what is known of it, then follow what the store answers."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ...core.bucket import Bucket
from ...core.exceptions import StorageUnavailable
from ...core.judge import NEVER
from ...core.planner import Crowded, Short, plan, plan_create, plan_first, plan_restamp
from ...core.writes import Absent, Granted, Outcome, Refused, Write
from ..coalesce.batch import take_joined
from ..scope import Scope
from ..shards.items import draw, make_shard, others, prefer, split_shard
from ..shards.multi_take import withdraw
from .adopt import adopt, look_again
from .charge import Charge, LimitsDiffer, Shortage, Taken, paying, shortage
from .dispatch import dispatch
from .send import send
from .step_back import step_back

# Each lost race means that another client won it; a bound keeps it finite.
_MAX_ATTEMPTS = 96
_PATIENCE = 3
_OTHER_SHARDS = 2


async def take(scope: Scope, charge: Charge, *, speculative: bool = True) -> Taken | Shortage:
    """Charge the bucket, in one call when the item that is drawn has the balance."""
    corrections = scope.refusals.corrections
    charge.begun_ms = scope.io.now_ms()
    outcome = await _take_anywhere(scope, charge, speculative)
    if isinstance(outcome, Shortage):
        scope.refusals.keep(outcome, scope.io.now_ms(), corrections)
    else:
        scope.refusals.forget(charge.address)
    return outcome


async def _take_anywhere(scope: Scope, charge: Charge, speculative: bool) -> Taken | Shortage:
    """Charge the item that is drawn, else another, else several at once."""
    for _ in range(_MAX_ATTEMPTS):
        outcome = await _take_drawn(scope, charge, speculative)
        if isinstance(outcome, Taken) or scope.shard_count(charge.address) == 1:
            return outcome
        whole = await withdraw(scope, charge)
        if whole is not None:
            return whole
        # It was deleted meanwhile, so it starts anew.
        scope.shard_counts.discard(charge.address.home)
    raise StorageUnavailable(f"{charge.address.home} is deleted again and again")


async def _take_drawn(scope: Scope, charge: Charge, speculative: bool) -> Taken | Shortage:
    """Charge the item that is drawn, else another, if there are any."""
    charge.address = draw(scope, charge.address.home)
    outcome = await take_joined(scope, charge, speculative, _take_here)
    if isinstance(outcome, Taken) or scope.shard_count(charge.address) == 1:
        return outcome
    # What is more than this shard can ever hold is more than its siblings can, too.
    tries = 0 if outcome.wait_ms == NEVER else _OTHER_SHARDS
    for address in others(scope, charge.address, tries):
        charge.address = address
        outcome = await take_joined(scope, charge, speculative, _take_here)
        if isinstance(outcome, Taken):
            prefer(scope, address)
            break
    return outcome


async def _take_here(scope: Scope, charge: Charge, speculative: bool) -> Taken | Shortage:
    """Charge one item.

    All writes that are tried for it have one id: if one of them lands late, after it was
    given up for lost, the item knows that it has been charged already.
    """
    charge.operation = scope.io.operation_id()
    charge.intent = paying(charge.intent, 1)
    writes = 0
    outcome: Outcome
    if speculative:
        image = scope.images.get(charge.address)
        first = plan_first(charge.intent, image, charge.operation, charge.begun_ms)
        outcome, writes = await _dispatch(scope, charge, first), 1
    else:
        outcome = await _look(scope, charge)
    for attempt in range(_MAX_ATTEMPTS):
        if isinstance(outcome, Granted):
            return Taken(charge)
        charge.intent = paying(charge.intent, writes + 1)
        if attempt >= _PATIENCE and isinstance(outcome, Refused):
            # Too many want this item at once.
            await step_back(scope, attempt - _PATIENCE)
            outcome = await _look(scope, charge)
        planned = await _plan(scope, charge, outcome)
        match planned:
            case Shortage():
                return planned
            case Refused() | Absent():
                outcome = planned
            case _:
                outcome, writes = await _dispatch(scope, charge, planned), writes + 1
    raise StorageUnavailable(f"{charge.address} is too contended")


def _dispatch(scope: Scope, charge: Charge, write: Write) -> Coroutine[Any, Any, Outcome]:
    entry = charge.entry(charge.address, charge.intent.takes_milli, charge.intent.acquires)
    return dispatch(scope, charge, entry, write)


async def _look(scope: Scope, charge: Charge) -> Refused | Absent:
    bucket = (await scope.store.buckets.read([charge.address])).get(charge.address)
    outcome = Absent() if bucket is None else Refused(bucket)
    scope.remember(charge.address, outcome)
    return outcome


async def _plan(
    scope: Scope, charge: Charge, outcome: Refused | Absent
) -> Write | Shortage | Refused | Absent:
    """What to do next: send a write, give up, or look again at another image."""
    if isinstance(outcome, Absent):
        return await _plan_absent(scope, charge)
    bucket = outcome.bucket
    if bucket.fingerprint != charge.limits.fingerprint:
        await _adopt(scope, charge)
    decided = plan(charge.intent, bucket, charge.operation, _as_of_ms(scope, charge, bucket))
    match decided:
        case Short():
            if bucket.fingerprint != charge.limits.fingerprint:
                await _restamp(scope, charge, bucket)
            return shortage(charge, [decided.bucket])
        case Crowded():
            return await _spread(scope, charge, bucket)
        case _:
            return decided


def _as_of_ms(scope: Scope, charge: Charge, bucket: Bucket) -> int:
    """The time at which the bucket is charged: when the request came. So what others do to it
    meanwhile cannot be in its way. But an item that may go at any moment has to be renewed."""
    now_ms = scope.io.now_ms()
    return now_ms if bucket.is_expired(now_ms) else charge.begun_ms


async def _plan_absent(scope: Scope, charge: Charge) -> Write | Shortage | Refused:
    if scope.shard_count(charge.address) > 1:
        made = await make_shard(scope, charge.address)
        if made is not None:
            charge.address, bucket = made
            return Refused(bucket)
        charge.address = charge.address.home
        scope.shard_counts.discard(charge.address)
    planned = plan_create(charge.intent, charge.operation, scope.io.now_ms())
    return shortage(charge, [planned.bucket]) if isinstance(planned, Short) else planned


async def _spread(scope: Scope, charge: Charge, bucket: Bucket) -> Refused | Absent:
    """The item is written too often: split it and go on at its new sibling."""
    await split_shard(scope, charge.address, bucket)
    charge.address = draw(scope, charge.address)
    return await _look(scope, charge)


async def _adopt(scope: Scope, charge: Charge) -> None:
    """The bucket carries other limits than we knew: look once whether ours are out of date."""
    if charge.overridden:
        return
    if charge.is_joint:
        raise LimitsDiffer
    adopt(scope, charge, await look_again(scope, charge))


async def _restamp(scope: Scope, charge: Charge, bucket: Bucket) -> None:
    """Put our limits in force though we take nothing; losing a race here loses nothing."""
    io = scope.io
    write = plan_restamp(charge.intent, bucket, io.operation_id(), io.now_ms())
    try:
        await send(scope, charge.address, write)
    except StorageUnavailable:
        return
