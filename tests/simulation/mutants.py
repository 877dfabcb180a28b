"""Mutants are limiters that are wrong in a known way. A simulation that lets one pass is worth
nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tests.support.clauses import outcome_without
from zae_limiter.core.apply import apply
from zae_limiter.core.bucket import Bucket
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.idempotency import Landing
from zae_limiter.core.writes import Adjust, Granted, Outcome, Write
from zae_limiter.flows.acquire.send import Addressed
from zae_limiter.flows.config.cache import ConfigCache
from zae_limiter.flows.scope import Scope

from .truth import Apply


def unclamped(write: Write, bucket: Bucket | None) -> Outcome:
    """Let refunds go above the ceiling."""
    outcome = apply(write, bucket)
    if bucket is None or not isinstance(write, Adjust) or write.operation in bucket.recent:
        return outcome
    assert isinstance(outcome, Granted)
    cells = dict(outcome.bucket.cells)
    for name in cells.keys() & write.deltas_milli.keys():
        tokens_milli = bucket.cells[name].tokens_milli - write.deltas_milli[name]
        cells[name] = cells[name]._replace(tokens_milli=tokens_milli)
    return Granted(outcome.bucket._replace(cells=cells))


def time_turned_back(write: Write, bucket: Bucket | None) -> Outcome:
    """Let a client whose clock is behind move the refill time backward."""
    outcome = apply(write, bucket)
    if isinstance(outcome, Granted) and bucket is not None and outcome.bucket is not bucket:
        return Granted(outcome.bucket._replace(refilled_at_ms=write.at_ms))
    return outcome


STORES: dict[str, Apply] = {
    "a refill does not ask who else refilled": outcome_without("rf"),
    "a refill may overdraw": outcome_without("floor", "same"),
    "a refill may go above the ceiling": outcome_without("roof", "same", "remainder"),
    "a refill that fills forgets what was taken": outcome_without("same"),
    "a write is carried out each time it arrives": outcome_without("memory", "fence"),
    "a write is carried out however late it arrives": outcome_without("fence"),
    "a full bucket's time is credited twice": outcome_without("from", "overflow"),
    "tokens are taken that are not there": outcome_without("stored"),
    "what was gained is taken twice": outcome_without("gained"),
    "what was gained is taken after it was refilled": outcome_without("until"),
    "refunds are not clamped": unclamped,
    "time goes backward": time_turned_back,
}


async def resend_as_new(
    scope: Scope, writes: Sequence[Addressed], known: Collection[str], error: StorageUnavailable
) -> list[Outcome]:
    """Give each try of a write an operation id of its own."""
    for _ in range(3):
        await scope.io.pause(0.01)
        again = [(a, write._replace(operation=scope.io.operation_id())) for a, write in writes]
        try:
            return [await scope.store.buckets.write(a, write) for a, write in again]
        except StorageUnavailable as failure:
            error = failure
    raise error


async def do_nothing(*_: Any) -> None:
    """Do not refund what was taken."""


def always_landed(*_: Any) -> Landing:
    """Take a lost write for one that landed."""
    return Landing.LANDED


def long_memory(ttl_seconds: float) -> ConfigCache:
    """Cache configuration for longer than its lifetime."""
    return ConfigCache(ttl_seconds + 60)


FLOWS: dict[str, tuple[str, Any]] = {
    "a refund is sent again as a new one": (
        "zae_limiter.flows.acquire.send._send_again",
        resend_as_new,
    ),
    "the other levels keep what they took": ("zae_limiter.flows.acquire.acquire.undo", do_nothing),
    "a body that fails keeps what it took": ("zae_limiter.flows.acquire.lease.refund", do_nothing),
    "a lost write counts as landed": ("zae_limiter.flows.acquire.send.landing", always_landed),
    "old limits stay in force": ("tests.simulation.world.ConfigCache", long_memory),
}
