"""What a request asks of one bucket, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.bucket import Bucket, BucketAddress, at, full_bucket, refill, stamp
from ...core.bucket import take as taken_from
from ...core.exceptions import StorageUnavailable, ValidationError
from ...core.judge import judge_shards, statuses
from ...core.ledger import Entry
from ...core.limit import LimitSet
from ...core.models import LimitStatus
from ...core.planner import Intent
from ...core.validation import WCU
from ..config.resolution import Resolution

if TYPE_CHECKING:
    from ..scope import Scope

# What each write spends of an item's own allowance, where the store meters writes: a quarter more
# than it is, so that an item is split before the store refuses to write it.
ONE_WRITE_MILLI = 1250


@dataclass(slots=True)
class Charge:
    """One bucket that a request is about to charge.

    `overridden`: the caller brought the limits, so there is nothing to resolve again.
    `operation`: the id of whatever is written for it to the item at its address.
    `sent`: charges by operation whose outcome is not known yet, or will never be.
    `entries`: what was taken, and where. `shards`: the items as they were left.
    `begun_ms`: when the request came, or boarded a flight with others. It is judged as of then:
    what is gained while it is being dealt with is for those who come later, or nobody would ever
    be refused a limit that gains something with every round trip. And it is charged as of then:
    what others do to the bucket meanwhile is not in its way.
    `is_joint`: the sum of several charges, which may differ in what they want of other limits.
    """

    address: BucketAddress
    intent: Intent
    wanted_milli: Mapping[str, int]
    is_leaf: bool
    overridden: bool
    operation: str = ""
    sent: Sequence[tuple[str, Entry]] = ()
    entries: list[Entry] = field(default_factory=list)
    shards: Sequence[Bucket] = ()
    is_joint: bool = False
    begun_ms: int = 0

    @property
    def limits(self) -> LimitSet:
        return self.intent.limits

    def entry(self, address: BucketAddress, takes_milli: Mapping[str, int], acquires: int) -> Entry:
        """What the ledger will say of a charge. An item's own writes are nobody's debt."""
        charged_milli = dict(takes_milli)
        charged_milli.pop(WCU, None)
        return Entry(address, self.intent.limits.names, charged_milli, acquires)

    def give_up(self, error: StorageUnavailable) -> None:
        """A write failed. What could be found out about it has been (`send`), unless the store
        said that it is useless to try again: what is still in doubt stays charged."""
        if error.retryable or not error.ambiguous:
            self.sent = ()


class LimitsDiffer(Exception):
    """The item carries other limits than a joint charge."""


@dataclass(slots=True)
class Taken:
    """The bucket was charged."""

    charge: Charge


@dataclass(slots=True)
class Shortage:
    """The bucket, as it stands, cannot cover the charge. Nothing was taken from it."""

    charge: Charge
    shards: Sequence[Bucket]
    wait_ms: float


def shortage(charge: Charge, shards: Sequence[Bucket]) -> Shortage:
    """That these items, together, are short, and for how long."""
    return Shortage(charge, shards, judge_shards(shards, charge.intent.takes_milli).wait_ms)


def intent_for(
    scope: Scope,
    resolution: Resolution,
    limits: LimitSet,
    wanted_milli: Mapping[str, int],
    acquires: int,
) -> Intent:
    """What to ask of a bucket that carries these limits: only what it limits."""
    takes_milli = wanted_milli
    metered = scope.store.buckets.metered
    if metered or not wanted_milli.keys() <= limits.by_name.keys():
        takes_milli = {n: amount for n, amount in wanted_milli.items() if n in limits.by_name}
        if metered:
            takes_milli[WCU] = ONE_WRITE_MILLI
    return Intent(
        limits,
        takes_milli,
        acquires,
        _ttl_seconds(resolution, limits, scope.bucket_ttl_multiplier),
        resolution.parent_id,
        resolution.cascade,
        metered,
    )


def paying(intent: Intent, writes: int) -> Intent:
    """The intent, as it pays for so many writes: one that is lost wears the item out, too."""
    cost_milli = writes * ONE_WRITE_MILLI
    if intent.takes_milli.get(WCU, cost_milli) == cost_milli:
        return intent
    return intent._replace(takes_milli={**intent.takes_milli, WCU: cost_milli})


def _ttl_seconds(resolution: Resolution, limits: LimitSet, multiplier: int) -> int | None:
    """Buckets with limits of their own stay; others may go once they have long been full."""
    if resolution.source in ("entity", "entity_default") or multiplier <= 0:
        return None
    return math.ceil(limits.seconds_to_fill * multiplier)


def require_known(wanted_milli: Mapping[str, int], limits: LimitSet, field_name: str) -> None:
    """Refuse names that no limit has."""
    for name in wanted_milli:
        if name not in limits.by_name:
            known = ", ".join(sorted(limits.by_name))
            raise ValidationError(field_name, name, f"no limit named '{name}' (known: {known})")


def status_of(outcome: Taken | Shortage) -> list[LimitStatus]:
    """How each limit of a bucket stood towards the request."""
    charge = outcome.charge
    shards = outcome.shards if isinstance(outcome, Shortage) else _before(charge)
    address = charge.address
    return statuses(
        address.entity_id, address.resource, shards, charge.limits, charge.intent.takes_milli
    )


def _before(charge: Charge) -> list[Bucket]:
    """The items as they were when the charge found enough in them. One whose answer was lost
    was looked at later, and may have come to carry other limits."""
    before = []
    for bucket, entry in zip(charge.shards, charge.entries, strict=True):
        given_milli = {name: -taken_milli for name, taken_milli in entry.charged_milli.items()}
        found = taken_from(stamp(bucket, charge.limits), given_milli, 0)
        before.append(refill(found, charge.begun_ms))
    return before


def view(charge: Charge, shards: Sequence[Bucket], now_ms: int) -> list[Bucket]:
    """The items as they stand now; a bucket that does not exist is full."""
    if not shards:
        return [full_bucket(charge.limits, now_ms)]
    return [at(bucket, charge.limits, now_ms) for bucket in shards]
