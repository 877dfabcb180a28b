"""Sending writes so that each takes effect once, however often the answer is lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from ...core.bucket import Bucket, BucketAddress
from ...core.exceptions import StorageUnavailable
from ...core.idempotency import Landing, landing
from ...core.writes import Absent, Granted, Outcome, Write
from ..scope import Scope

# After the last of them only what became of the write is asked.
_DELAYS_S = (0.01, 0.05, 0.2, 0.4)
# A write that hung for longer is not sent again: whoever waits has waited enough.
_PATIENCE_MS = 1000
Addressed = tuple[BucketAddress, Write]


async def send(scope: Scope, address: BucketAddress, write: Write) -> Outcome:
    """Carry out a write, and remember the bucket that comes back."""
    seen = scope.images.get(address)
    try:
        outcome = await scope.store.buckets.write(address, write)
    except StorageUnavailable as error:
        outcome = (await _send_again(scope, [(address, write)], _operations(seen), error))[0]
    scope.remember(address, outcome)
    return outcome


async def send_all(scope: Scope, writes: Sequence[Addressed]) -> list[Outcome]:
    """Carry out writes on different items, all or none."""
    known = _operations(*(scope.images.get(address) for address, _ in writes))
    try:
        outcomes = await scope.store.buckets.write_all(writes)
    except StorageUnavailable as error:
        outcomes = await _send_again(scope, writes, known, error)
    carried_out = all(isinstance(outcome, Granted) for outcome in outcomes)
    for (address, _), outcome in zip(writes, outcomes, strict=True):
        if carried_out or not isinstance(outcome, Granted):
            scope.remember(address, outcome)
    return outcomes


def _operations(*seen: Bucket | None) -> set[str]:
    """What had been done to these buckets when they were last seen."""
    return {operation for bucket in seen if bucket is not None for operation in bucket.recent}


async def send_surely(scope: Scope, address: BucketAddress, write: Write) -> Outcome:
    """Carry out a write that is owed, even if an interrupt arrives meanwhile: it is raised
    afterwards."""
    seen = scope.images.get(address)
    try:
        return await send(scope, address, write)
    except Exception:
        raise
    except BaseException as interruption:
        unknown = StorageUnavailable("The write was interrupted", interruption, ambiguous=True)
        with suppress(StorageUnavailable):
            await _send_again(scope, [(address, write)], _operations(seen), unknown)
        raise


async def _send_again(
    scope: Scope, writes: Sequence[Addressed], known: Collection[str], error: StorageUnavailable
) -> list[Outcome]:
    """After an ambiguous failure, find out what happened, and repeat what did not, a bounded
    number of times. Anything else a store has tried as often as makes sense. What is raised in
    the end has been looked into: asking once more would lead nowhere.

    The buckets themselves tell whether the writes had landed. They are sent again only if they
    surely had not; where that cannot be told, the failure is raised and stays ambiguous: what
    may have been charged is not charged again.
    """
    for delay_s in _DELAYS_S:
        if not (error.retryable and error.ambiguous):
            break
        await scope.io.pause(delay_s)
        landed = await _landed(scope, writes, known, error)
        if landed is not None:
            return landed
        if delay_s == _DELAYS_S[-1] or scope.io.now_ms() - writes[0][1].at_ms > _PATIENCE_MS:
            break
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
    scope: Scope, writes: Sequence[Addressed], known: Collection[str], error: StorageUnavailable
) -> list[Outcome] | None:
    """The outcomes if the writes had landed, None if they had not."""
    try:
        found = await scope.store.buckets.read([address for address, _ in writes])
    except StorageUnavailable:
        raise error from None
    # All or none landed, so what one of them proves holds for all.
    proofs = {landing(write.operation, found.get(address), known) for address, write in writes}
    if Landing.LANDED in proofs:
        return [Granted(found[a]) if a in found else Absent() for a, _ in writes]
    if Landing.LOST in proofs:
        return None
    raise error
