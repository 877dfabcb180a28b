"""Sending one write so that it takes effect once, however often the answer is lost."""

from __future__ import annotations

from ..core.composite import BucketAddress
from ..core.exceptions import StorageUnavailable
from ..core.operations import Landing, landing
from ..core.writes import Absent, Granted, Outcome, Write
from .scope import Scope

_RETRY_DELAYS_S = (0.01, 0.05, 0.2)


async def send(scope: Scope, address: BucketAddress, write: Write) -> Outcome:
    """Carry out a write, and remember the bucket that comes back."""
    try:
        outcome = await scope.store.buckets.write(address, write)
    except StorageUnavailable as error:
        outcome = await _send_again(scope, address, write, error)
    if not isinstance(outcome, Absent):
        scope.images.put(address, outcome.bucket)
    return outcome


async def _send_again(
    scope: Scope, address: BucketAddress, write: Write, error: StorageUnavailable
) -> Outcome:
    """Retry a failure that may pass, a bounded number of times.

    After an ambiguous failure the bucket itself tells whether the write had landed. It is
    sent again only if it surely had not; where that cannot be told, the failure is raised
    and stays ambiguous: what may have been charged is not charged again.
    """
    for delay_s in _RETRY_DELAYS_S:
        if not error.retryable:
            break
        await scope.io.pause(delay_s)
        landed = await _landed(scope, address, write, error) if error.ambiguous else None
        if landed is not None:
            return landed
        try:
            return await scope.store.buckets.write(address, write)
        except StorageUnavailable as failure:
            error = failure
    raise error


async def _landed(
    scope: Scope, address: BucketAddress, write: Write, error: StorageUnavailable
) -> Granted | None:
    try:
        bucket = (await scope.store.buckets.read([address])).get(address)
    except StorageUnavailable:
        raise error from None
    match landing(write.operation, bucket):
        case Landing.LANDED if bucket is not None:
            return Granted(bucket)
        case Landing.LOST:
            return None
        case _:
            raise error
