"""Sending writes so that each takes effect once, however often the answer is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ...core.bucket import Bucket, BucketAddress
from ...core.exceptions import StorageUnavailable
from ...core.idempotency import Landing, landing, past_fence
from ...core.ledger import Entry
from ...core.writes import UNSEEN, Adjust, Create, Granted, Outcome, Refused, Write
from ...ports.repository_protocol import StoreClosed
from ..scope import Scope
from .charge import Progress
from .failed_writes import log_failed_write

# After the last delay the write is not repeated; only its fate is asked once more.
_DELAYS_S = (0.01, 0.05, 0.2, 0.4)
# A charge that hung for longer is not sent again, nor asked after again: its caller has waited
# enough. What is owed has as long as the call has.
_PATIENCE_MS = 1000
_INTERRUPTED = "The outcome of an interrupted correction is unknown"
_LONGEST_NAP_MS = 128
Addressed = tuple[BucketAddress, Write]
_Found = Mapping[BucketAddress, Bucket]
_T = TypeVar("_T")


async def send_charge(scope: Scope, progress: Progress, entry: Entry, write: Write) -> Outcome:
    """Carry out a write that charges `entry`, and keep account of it whatever happens meanwhile."""
    progress.sent = ((write.operation, entry),)
    try:
        outcome = await send(scope, entry.address, write)
    except (StorageUnavailable, StoreClosed) as error:
        progress.give_up(error)
        raise
    if isinstance(outcome, Granted):
        entries, shards = [*progress.entries, entry], (*progress.shards, outcome.bucket)
        # Without a call between these lines, no interrupt can come between them: the charge
        # would be given back twice, or not at all.
        progress.sent = ()
        progress.entries = entries
        progress.shards = shards
    progress.sent = ()
    return outcome


async def send(scope: Scope, address: BucketAddress, write: Write) -> Outcome:
    """Carry out a write, and remember the bucket item that comes back."""
    local = scope.local
    seen = local.images.get(address)
    write = unfenced(write, seen)
    try:
        outcome = await scope.store.buckets.write(address, write)
    except StorageUnavailable as error:
        outcome = (await _send_again(scope, [(address, write)], _operations(seen), error))[0]
    local.remember(address, outcome)
    if isinstance(outcome, Refused) and write.operation < outcome.bucket.fence:
        # Another client has moved the fence meanwhile, so that this write could not land.
        return await send(scope, address, write)
    return outcome


def unfenced(write: Write, seen: Bucket | None) -> Write:
    """The write as a copy that the item does not refuse for its age."""
    if seen is None or write.operation > seen.fence:
        return write
    return write._replace(operation=past_fence(write.operation, seen.fence))


async def send_all(scope: Scope, writes: Sequence[Addressed]) -> list[Outcome]:
    """Carry out writes on different items in one transaction, all or none."""
    images = [scope.local.images.get(address) for address, _ in writes]
    known = _operations(*images)
    writes = [(a, unfenced(w, seen)) for (a, w), seen in zip(writes, images, strict=True)]
    try:
        outcomes = await scope.store.buckets.write_all(writes)
    except StorageUnavailable as error:
        outcomes = await _send_again(scope, writes, known, error)
    carried_out = all(isinstance(outcome, Granted) for outcome in outcomes)
    for (address, _), outcome in zip(writes, outcomes, strict=True):
        if carried_out or not isinstance(outcome, Granted):
            scope.local.remember(address, outcome)
    return outcomes


async def send_owed(scope: Scope, address: BucketAddress, write: Adjust) -> Outcome:
    """Carry out a write that is owed, even if an interrupt arrives meanwhile: it is raised
    afterwards."""
    seen = scope.local.images.get(address)
    try:
        return await send(scope, address, write)
    except Exception:
        raise
    except BaseException as interruption:
        unknown = StorageUnavailable("The write was interrupted", interruption, ambiguous=True)
        try:
            await _send_again(scope, [(address, write)], _operations(seen), unknown)
        except StorageUnavailable as failure:
            log_failed_write(_INTERRUPTED, write.deltas_milli, address, failure)
        raise


def _operations(*seen: Bucket | None) -> set[str]:
    """The operations that had landed when these items were last seen."""
    return {operation for bucket in seen if bucket is not None for operation in bucket.recent}


async def _send_again(
    scope: Scope, writes: Sequence[Addressed], known: Collection[str], error: StorageUnavailable
) -> list[Outcome]:
    """Find out, after an ambiguous failure, whether the writes landed, and repeat them a bounded
    number of times if they did not. Other failures the store has retried as often as makes sense.

    The items themselves tell whether the writes landed. Writes are repeated only if they surely
    had not, and a fence keeps them from landing yet. Where that cannot be told, the failure is
    raised and stays ambiguous: what may have been charged is not charged again.
    """
    is_owed = isinstance(writes[0][1], Adjust)
    for delay_s in _DELAYS_S:
        if not (error.retryable and error.ambiguous) or scope.io.left_s() <= delay_s:
            break
        await scope.io.pause(delay_s)
        landed = await _landed(scope, writes, known, error, is_owed)
        if isinstance(landed, list):
            return landed
        waited_ms = scope.io.now_ms() - writes[0][1].at_ms
        if delay_s == _DELAYS_S[-1] or (waited_ms > _PATIENCE_MS and not is_owed):
            raise StorageUnavailable(str(error), error, retryable=False) from error
        writes = [(address, unfenced(write, landed.get(address))) for address, write in writes]
        try:
            return await _write(scope, writes)
        except StorageUnavailable as failure:
            error = failure
    raise error


async def _write(scope: Scope, writes: Sequence[Addressed]) -> list[Outcome]:
    if len(writes) == 1:
        return [await scope.store.buckets.write(*writes[0])]
    return await scope.store.buckets.write_all(writes)


async def _landed(
    scope: Scope,
    writes: Sequence[Addressed],
    known: Collection[str],
    error: StorageUnavailable,
    is_owed: bool,
) -> list[Outcome] | _Found:
    """The outcomes if the writes had landed; if they had not, the items, one of which is fenced:
    that keeps all writes of a transaction from landing later."""
    try:
        found = await ask_store(scope, lambda: _look_up(scope, writes, known), is_owed)
    except (StorageUnavailable, StoreClosed):
        raise error from None
    match _proof(writes, found, known):
        case Landing.LANDED:
            return [Granted(found.get(each, UNSEEN)) for each, _ in writes]
        case Landing.LOST:
            return found
        case Landing.UNKNOWN:
            raise error


async def _look_up(scope: Scope, writes: Sequence[Addressed], known: Collection[str]) -> _Found:
    buckets = scope.store.buckets
    # The creation of an item needs no fence: it cannot land once the item is there.
    address, write = next((each for each in writes if not isinstance(each[1], Create)), writes[0])
    found: dict[BucketAddress, Bucket] = {}
    if len(writes) > 1:
        found = await buckets.read([each for each, _ in writes])
    if _proof(writes, found, known) is not Landing.LANDED:
        bucket = await buckets.fence(address, write.operation)
        found |= {} if bucket is None else {address: bucket}
    return found


async def ask_store(scope: Scope, question: Callable[[], Awaitable[_T]], is_owed: bool) -> _T:
    """Ask what became of a write, and ask again if the question failed, unless that took long:
    to ask twice changes nothing more. Raises the last failure."""
    for delay_s in _DELAYS_S:
        began_ms = scope.io.now_ms()
        try:
            return await question()
        except StorageUnavailable as failure:
            took_ms = scope.io.now_ms() - began_ms
            is_slow = took_ms > _PATIENCE_MS and not is_owed
            if is_slow or not failure.retryable or scope.io.left_s() <= delay_s:
                raise
        await scope.io.pause(delay_s)
    return await question()


def _proof(writes: Sequence[Addressed], found: _Found, known: Collection[str]) -> Landing:
    """Whether the writes landed. All or none did, so the proof of one holds for all."""
    proofs = {landing(write.operation, found.get(address), known) for address, write in writes}
    return next(proof for proof in Landing if proof in proofs)


async def find_out(scope: Scope, progress: Progress) -> None:
    """Find out whether charges of unknown outcome landed: if so, they become entries. If the items
    cannot tell, the charges stand, which is logged."""
    proofs: set[Landing] = set()
    cause: object = "the items do not remember"
    for operation, entry in progress.sent:
        try:
            item = await ask_store(scope, partial(_fence, scope, entry.address, operation), False)
            proofs.add(landing(operation, item))
        except Exception as error:
            cause = error
    # Charges of one bucket that were sent together landed together.
    if Landing.LANDED in proofs:
        entries = [*progress.entries, *(entry for _, entry in progress.sent)]
        # Without a call between these lines, no interrupt can come between them.
        progress.entries = entries
        progress.sent = ()
    elif Landing.LOST in proofs:
        progress.sent = ()
    else:
        progress.count_as_charged(cause)


def _fence(
    scope: Scope, address: BucketAddress, operation: str
) -> Coroutine[Any, Any, Bucket | None]:
    """Fence all copies of an operation. The last of them may be planned as late as now."""
    return scope.store.buckets.fence(address, max(operation, scope.io.operation_id()))


async def step_back(scope: Scope, lost: int) -> None:
    """Wait after a lost race: backoff with full jitter, so that clients that lost the same race
    do not all meet again in the next."""
    longest_ms = min(_LONGEST_NAP_MS, 1 << min(lost, 10))
    await scope.io.pause(scope.io.entropy() % (longest_ms * 1000) / 1_000_000)
