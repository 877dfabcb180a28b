"""Refusing without a call what the store would refuse."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.bucket import refill
from ..scope import Scope
from .charge import Charge, Shortage, shortage


def foresee(scope: Scope, charges: Sequence[Charge]) -> list[Shortage]:
    """How each level stands towards a request, if one is known to be short and nothing of the
    others is unknown. Otherwise nothing."""
    if scope.refusals.is_empty:
        return []
    now_ms = scope.io.now_ms()
    known = [scope.refusals.recall(charge, now_ms) for charge in charges]
    if not any(known):
        return []
    levels = [k or _last_seen(scope, c, now_ms) for k, c in zip(known, charges, strict=True)]
    found = [level for level in levels if level is not None]
    if len(found) < len(charges):
        return []
    scope.refusals.recalled += 1
    return found


def _last_seen(scope: Scope, charge: Charge, now_ms: int) -> Shortage | None:
    """How a level stands that had enough when it was last seen here."""
    home = charge.address.home
    shards = []
    for number in range(scope.shard_count(home)):
        image = scope.images.get(home._replace(shard=number))
        if image is None or image.fingerprint != charge.limits.fingerprint:
            return None
        shards.append(refill(image, now_ms))
    level = shortage(charge, shards)
    return None if level.wait_ms else level
