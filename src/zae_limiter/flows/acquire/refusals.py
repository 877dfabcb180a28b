"""Refusals: those that are known without a call, and the error that the caller gets."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.bucket import Bucket, refill
from ...core.judge import NEVER
from ...core.rate_limit_exceeded import RateLimitExceeded
from ..scope import Scope
from .charge import Progress, Shortage, Taken, shortage, status_of


class AcquireRefused(Exception):
    """At least one level was short; every level is as if nothing had been asked.

    `is_undone`: whether that is certain, though some levels had been charged.
    """

    def __init__(self, outcomes: Sequence[Taken | Shortage]) -> None:
        super().__init__()
        self.outcomes = outcomes
        self.is_undone = True
        shortages = [outcome for outcome in outcomes if isinstance(outcome, Shortage)]
        self.worst = max(shortages, key=lambda level: level.wait_ms)

    @property
    def short_items(self) -> list[Bucket]:
        """The items of levels that are short now, and not for good."""
        shortages = [outcome for outcome in self.outcomes if isinstance(outcome, Shortage)]
        return [item for s in shortages if 0 < s.wait_ms < NEVER for item in s.shards]

    def to_error(self) -> RateLimitExceeded:
        """The error for the caller, with the status of every limit of every level."""
        return RateLimitExceeded([s for outcome in self.outcomes for s in status_of(outcome)])


def keep(scope: Scope, refused: AcquireRefused, corrections: int) -> None:
    """Remember the levels that were short, unless they were corrected since `corrections` was
    counted."""
    for outcome in refused.outcomes:
        if isinstance(outcome, Shortage) and outcome.wait_ms:
            home = outcome.progress.charge.home
            scope.local.refusals.keep(home, outcome.shards, scope.io.now_ms(), corrections)


def foresee(scope: Scope, levels: Sequence[Progress]) -> list[Shortage]:
    """Tell how each level stands towards a request, if one is known to be short and none of the
    others is unknown. Otherwise an empty list."""
    refusals = scope.local.refusals
    if refusals.is_empty:
        return []
    now_ms = scope.io.now_ms()
    known = [_known_short(scope, level, now_ms) for level in levels]
    if not any(known):
        return []
    stands = [k or _last_seen(scope, p, now_ms) for k, p in zip(known, levels, strict=True)]
    found = [level for level in stands if level is not None]
    if len(found) < len(levels):
        return []
    refusals.recalled[scope.namespace_id] += 1
    return found


def _known_short(scope: Scope, level: Progress, now_ms: int) -> Shortage | None:
    """The refusal that the store would answer with, if that is known."""
    charge = level.charge
    shards = scope.local.refusals.recall(
        charge.home, charge.limits.fingerprint, charge.intent.takes_milli, now_ms
    )
    return None if shards is None else shortage(level, shards)


def _last_seen(scope: Scope, level: Progress, now_ms: int) -> Shortage | None:
    """The standing of a level that had enough when it was last seen here."""
    home = level.charge.home
    shards = []
    for number in range(scope.local.shard_count(home)):
        image = scope.local.image(home._replace(shard=number))
        if image is None or image.fingerprint != level.charge.limits.fingerprint:
            return None
        shards.append(refill(image, now_ms))
    found = shortage(level, shards)
    return None if found.wait_ms else found
