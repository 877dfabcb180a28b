"""Group commit: what callers of one process want of one bucket item travels as one write.

The outcome is always one that some order of single writes gives. If all charges of a batch are
together more than the item holds, they are walked in the order in which they came: those that
still fit are sent again, and the others are judged by what is left.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.bucket import Bucket, BucketAddress, refill
from ...core.exceptions import StorageUnavailable, ValidationError
from ...core.writes import Outcome
from ..acquire.charge import (
    Correction,
    LimitsDiffer,
    Progress,
    Shortage,
    Taken,
    adopt,
    shortage,
)
from ..acquire.item import adjust_item, take_from_item
from ..acquire.send import find_out
from ..config.resolve import resolve_afresh
from ..scope import Scope
from ..shards.holes import read_whole
from ..shards.items import Items
from .charges import fitting, joint_progress, share_doubt, share_out, sum_corrections
from .queue import Ticket

# Each write after the second means that another client has changed the item meanwhile.
_MAX_WRITES = 16
# Reads of all items of a bucket queue up apart from the writes of any item.
_ALL_ITEMS = -1


@dataclass(frozen=True, slots=True)
class _ReadAll:
    """A wish to see every item of a bucket."""


class _Abandoned:
    """The outcome of a follower whose leader was interrupted before it had done anything."""


_Load = Progress | Correction | _ReadAll


@dataclass(slots=True)
class _Batch:
    """The tickets of a leader and its followers, and whether anything was done for them yet."""

    tickets: list[Ticket]
    is_begun: bool = False


def charge_item(scope: Scope, progress: Progress) -> Coroutine[Any, Any, Taken | Shortage]:
    """Charge one item, together with other callers of this process that charge it now."""
    return _submit(scope, progress.address, progress)


def correct_item(
    scope: Scope, address: BucketAddress, correction: Correction
) -> Coroutine[Any, Any, Outcome]:
    """Correct one item, together with other callers of this process that correct it now."""
    return _submit(scope, address, correction)


async def read_items(scope: Scope, home: BucketAddress) -> Items:
    """Read every item of a bucket, together with other callers of this process that want to."""
    if not scope.settings.coalesces:
        return await read_whole(scope, home)
    found: Items = await _submit(scope, home._replace(shard=_ALL_ITEMS), _ReadAll())
    return found


async def _submit(scope: Scope, address: BucketAddress, load: _Load) -> Any:
    """Carry out a load at once if nothing is under way at its item, else in the next batch."""
    queues = scope.local.write_queues
    try:
        if queues.start(address, load):
            return await _carry_out(scope, address, load)
    finally:
        # Not in a function of its own: an interrupt as that begins would leave the item taken.
        try:
            queues.leave(address, load)
        except BaseException:
            queues.leave(address, load)
            raise
    return await _queue_up(scope, address, load)


def _carry_out(scope: Scope, address: BucketAddress, load: _Load) -> Coroutine[Any, Any, Any]:
    """Carry out one load by itself."""
    if isinstance(load, Progress):
        return take_from_item(scope, load)
    if isinstance(load, Correction):
        return adjust_item(scope, address, load)
    return read_whole(scope, address.home)


async def _queue_up(scope: Scope, address: BucketAddress, load: _Load) -> object:
    """Follow in the next batch, or lead it. Returns the outcome, or raises it."""
    group = (_group(load), scope.io.patience_s())
    ticket = Ticket(scope.io.signal(), load, group, isinstance(load, Correction))
    queues = scope.local.write_queues
    try:
        queues.join(address, ticket)
        interruption = await _wait(scope, address, ticket)
        if ticket.leads:
            await _lead(scope, address, ticket)
    finally:
        # The question is inside, too: an interrupt as it is asked would leave the item taken.
        try:
            if ticket.is_queued:
                queues.leave(address, ticket)
        except BaseException:
            if ticket.is_queued:
                queues.leave(address, ticket)
            raise
    if interruption is not None:
        raise interruption
    if isinstance(ticket.outcome, BaseException):
        raise ticket.outcome
    if isinstance(ticket.outcome, _Abandoned):
        return await _submit(scope, address, load)
    return ticket.outcome


def _group(load: _Load) -> object:
    """Charges go together under the same limits, corrections and reads with their like."""
    return load.charge.limits.fingerprint if isinstance(load, Progress) else type(load)


async def _wait(scope: Scope, address: BucketAddress, ticket: Ticket) -> BaseException | None:
    """Wait until this ticket leads, or its batch has ended.

    Callers of equal patience need no timer: the write ahead of them ends in time for its own
    caller, who came earlier. A batch has members of one patience only.

    A caller that is interrupted while it is queued leaves the queue. One whose charge is under
    way must know the outcome before it can give it back, and a correction is never given up: an
    interruption that the driver does not hold back is returned, to be raised afterwards.
    """
    interruption: BaseException | None = None
    queues, is_patient = scope.local.write_queues, ticket.is_owed
    is_hurried = scope.io.patience_s() < scope.settings.patience_s
    while not ticket.is_over:
        try:
            if is_patient:
                await ticket.signal.hold()
            elif not is_hurried:
                await ticket.signal.wait(None)
            elif not await ticket.signal.wait(max(0, scope.io.left_s()), for_store=True):
                is_patient = True
                if queues.give_up(address, ticket):
                    raise _too_late(address)
        except StorageUnavailable:
            raise
        except BaseException as error:
            if not (is_patient and ticket.is_over):
                is_lost = is_patient or isinstance(error, GeneratorExit)
                if queues.give_up(address, ticket) or is_lost:
                    raise
            interruption, is_patient = interruption or error, True
    return interruption


def _too_late(address: BucketAddress) -> StorageUnavailable:
    return StorageUnavailable(f"{address} was not free in time", retryable=False)


async def _lead(scope: Scope, address: BucketAddress, leader: Ticket) -> None:
    """Carry out the loads of the leader and of all followers, and give each its outcome.

    The followers must not notice that their leader is cancelled: without the shield, their write
    would be given up with his.
    """
    batch = _Batch([leader])
    failure: BaseException | None = None
    try:
        if scope.settings.coalesces:
            if scope.settings.linger_s:
                await scope.io.pause(scope.settings.linger_s)
            scope.local.write_queues.form_batch(address, batch.tickets)
        if len(batch.tickets) == 1:
            await _carry_out_batch(scope, address, batch)
        else:
            scope.local.counts.count_batch(len(batch.tickets))
            await scope.io.shield(_carry_out_batch(scope, address, batch), shared=True)
    except BaseException as error:
        failure = error
        if not isinstance(error, Exception):
            raise
    finally:
        try:
            _finish(batch, failure)
        except BaseException:
            _finish(batch, failure)
            raise


def _finish(batch: _Batch, failure: BaseException | None) -> None:
    """Wake the followers. A failure of the write is everybody's. An interrupt is the leader's
    alone: a follower goes on by itself if nothing was done for it yet."""
    for ticket in batch.tickets:
        if ticket.outcome is None:
            if ticket is batch.tickets[0] or isinstance(failure, Exception):
                ticket.outcome = failure
            elif not batch.is_begun or _is_untouched(ticket.load):
                ticket.outcome = _Abandoned()
            else:
                text = "The write was interrupted"
                ticket.outcome = StorageUnavailable(text, failure, ambiguous=True)
        ticket.signal.set()


def _is_untouched(load: object) -> bool:
    """True when surely nothing was sent that could have an effect."""
    if isinstance(load, Progress):
        return not (load.sent or load.entries)
    return isinstance(load, _ReadAll)


async def _carry_out_batch(scope: Scope, address: BucketAddress, batch: _Batch) -> None:
    batch.is_begun = True
    tickets = batch.tickets
    loads = [ticket.load for ticket in tickets]
    if isinstance(loads[0], Progress):
        await _charge_together(scope, {t.load: t for t in tickets if isinstance(t.load, Progress)})
        return
    if isinstance(loads[0], Correction):
        total = sum_corrections([load for load in loads if isinstance(load, Correction)])
        outcome: object = await adjust_item(scope, address, total)
    else:
        outcome = await read_whole(scope, address.home)
    for ticket in tickets:
        ticket.outcome = outcome


_Group = dict[Progress, Ticket]


async def _charge_together(scope: Scope, waiting: _Group) -> None:
    """Charge the item for as many as it can serve, and tell the others that it is short."""
    joined_ms = scope.io.now_ms()
    for member in waiting:
        member.as_of_ms = joined_ms
    charged = _likely(scope, list(waiting))
    for _ in range(_MAX_WRITES):
        try:
            outcome = await _charge_sum(scope, charged, alone=len(waiting) == 1)
        except LimitsDiffer:
            waiting = await _take_over_limits(scope, waiting)
            charged = list(waiting)
            if len({member.charge.limits.fingerprint for member in charged}) == 1:
                continue
            break
        if isinstance(outcome, Taken):
            for member in charged:
                waiting.pop(member).outcome = Taken(member)
        # No charge is refused before the item has been seen to be short for it, since it came.
        left = _left(outcome, joined_ms)
        charged = fitting(list(waiting), left)
        if not charged:
            for member, ticket in waiting.items():
                ticket.outcome = shortage(member, [left])
            return
    for member, ticket in waiting.items():
        ticket.outcome = await take_from_item(scope, member)


async def _take_over_limits(scope: Scope, waiting: _Group) -> _Group:
    """Let all charges go by the limits that are in force now. Returns those that still can."""
    home = next(iter(waiting)).charge.home
    resolution = await resolve_afresh(scope, home.entity_id, home.resource)
    for member, ticket in waiting.items():
        try:
            adopt(scope, member, resolution)
        except ValidationError as error:
            # A charge that asks for a limit which is gone concerns none of the others.
            ticket.outcome = error
    return {member: ticket for member, ticket in waiting.items() if ticket.outcome is None}


def _likely(scope: Scope, members: list[Progress]) -> list[Progress]:
    """The charges to begin with: those for which the item had enough when it was last seen, or
    all of them if that says nothing."""
    first = members[0]
    image = scope.local.image(first.address)
    if image is None or image.fingerprint != first.charge.limits.fingerprint:
        return members
    return fitting(members, refill(image, scope.io.now_ms())) or members


async def _charge_sum(
    scope: Scope, members: Sequence[Progress], *, alone: bool
) -> Taken | Shortage:
    """Charge all of them at once, or none. Even a single charge is sent as a joint one while
    others wait: new limits that it meets concern all of them."""
    if alone:
        return await take_from_item(scope, members[0])
    joint = joint_progress(members)
    try:
        outcome = await take_from_item(scope, joint)
    except BaseException as error:
        if isinstance(error, Exception):
            # Once for all: while each asked for itself, the item would forget the write.
            await find_out(scope, joint)
        share_doubt(joint, members)
        raise
    if isinstance(outcome, Taken):
        share_out(joint, members)
    return outcome


def _left(outcome: Taken | Shortage, at_ms: int) -> Bucket:
    """The item as a write found or left it, as of some time."""
    shards = outcome.progress.shards if isinstance(outcome, Taken) else outcome.shards
    return refill(shards[0], at_ms)
