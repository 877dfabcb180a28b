"""The charge of one bucket: the amounts that a request asks, the progress, and the outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from ...core.bucket import Bucket, BucketAddress, at, full_bucket, refill, stamp, take_tokens
from ...core.exceptions import StorageUnavailable, ValidationError
from ...core.judge import judge_shards, statuses
from ...core.ledger import Entry
from ...core.limit import LimitSet
from ...core.marks import mark_ancestor, mark_leaf
from ...core.models import LimitStatus
from ...core.planner import Intent
from ...core.validation import WCU
from ...ports.repository_protocol import StoreClosed
from ..config.resolution import Resolution
from ..scope import Scope
from .failed_writes import log_failed_write
from .marks import new_operation

# The part of an item's own write allowance that each write spends, where the store meters writes:
# a quarter more than it is, so that an item is split before the store throttles it.
ONE_WRITE_MILLI = 1250
# An item that can be written so often without a refill may as well count one more write.
_SPARE_MILLI = 32 * ONE_WRITE_MILLI

_IN_DOUBT = "Charge of unknown outcome, the tokens may stay charged"


class LimitsFrom(Enum):
    """Where the limits of a charge come from, and so whether they may be stale."""

    CACHE = auto()
    CALLER = auto()
    STORE = auto()


class Charge(NamedTuple):
    """The amounts that a request asks of one bucket: the entity's own (`is_leaf`), or an
    ancestor's.

    `wanted_milli` is all that the request asks, `intent.takes_milli` the part that this bucket
    limits. `is_joint`: the sum of several charges, which may differ in what they want of other
    limits.
    """

    home: BucketAddress
    intent: Intent
    wanted_milli: Mapping[str, int]
    is_leaf: bool
    limits_from: LimitsFrom
    speculative: bool
    is_joint: bool = False

    @property
    def limits(self) -> LimitSet:
        """The limits under which the bucket is charged."""
        return self.intent.limits

    def entry(self, address: BucketAddress, takes_milli: Mapping[str, int], acquires: int) -> Entry:
        """The ledger's entry for this charge. An item's own writes are nobody's debt."""
        charged_milli = dict(takes_milli)
        charged_milli.pop(WCU, None)
        intent = self.intent
        return Entry(address, intent.limits.names, charged_milli, acquires, intents=(intent,))


@dataclass(slots=True, eq=False)
class Progress:
    """The progress of one charge.

    `charge` is replaced as a whole when stale limits are. `address`: the item in use now.
    `as_of_ms`: when the request came, or joined a batch. It is judged as of then: tokens gained
    while it is dealt with are for later requests, or nobody would ever be refused a limit that
    gains something with every round trip. It is charged as of then, too, so that refills by
    other clients are not in its way.
    `operation`: the id of every write that is tried for it at its address.
    `is_tentative`: it is undone if another level of the request refuses, and that is not known yet.
    `members`: the charges of which this is the sum.
    `sent`: charges by operation whose outcome is not known yet, or never will be.
    `entries`: what was taken, and where. `shards`: those items as the takings left them.
    """

    charge: Charge
    address: BucketAddress
    as_of_ms: int = 0
    operation: str = ""
    sent: Sequence[tuple[str, Entry]] = ()
    entries: list[Entry] = field(default_factory=list)
    shards: Sequence[Bucket] = ()
    is_tentative: bool = False
    members: Sequence[Progress] = ()

    def new_operation(self, scope: Scope) -> str:
        """The id of the next write that is tried for this charge."""
        charges = [charge for charge in self.members or (self,) if charge.is_tentative]
        if not charges:
            return new_operation(scope, self.address)
        mark = mark_leaf if all(charge.charge.is_leaf for charge in charges) else mark_ancestor
        operation = mark(scope.io.operation_id())
        scope.local.tentative.put(operation, charges)
        return operation

    def give_up(self, error: StorageUnavailable | StoreClosed) -> None:
        """Drop the charges whose write failed. `send` has found out what could be, unless the
        store said that trying again is useless. A charge that is still in doubt then counts as
        charged, which is logged."""
        if not error.ambiguous:
            self.sent = ()
        elif error.retryable:
            self.count_as_charged(error)

    def count_as_charged(self, cause: object) -> None:
        """Log the charges of unknown outcome, and drop them."""
        for _, entry in self.sent:
            log_failed_write(_IN_DOUBT, entry.charged_milli, entry.address, cause)
        self.sent = ()


class LimitsDiffer(Exception):
    """A bucket item carries other limits than a joint charge."""


@dataclass(slots=True)
class Correction:
    """An adjustment of one bucket item: deltas of its limits, and of its count of acquires.

    `intents`: the intents of the charges that it corrects, to make the item anew if it has gone.
    """

    deltas_milli: Mapping[str, int]
    acquires: int
    intents: tuple[Intent, ...] = ()


@dataclass(slots=True)
class Taken:
    """The bucket was charged."""

    progress: Progress


@dataclass(slots=True)
class Shortage:
    """The bucket, as it stands, cannot cover the charge. Nothing was taken from it."""

    progress: Progress
    shards: Sequence[Bucket]
    wait_ms: float


def shortage(progress: Progress, shards: Sequence[Bucket]) -> Shortage:
    """The shortage of these items, taken together, and how long it lasts."""
    takes_milli = progress.charge.intent.takes_milli
    return Shortage(progress, shards, judge_shards(shards, takes_milli).wait_ms)


def intent_for(
    scope: Scope,
    resolution: Resolution,
    limits: LimitSet,
    wanted_milli: Mapping[str, int],
    acquires: int,
) -> Intent:
    """The intent towards a bucket that carries these limits: only what it limits is asked."""
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
        _ttl_seconds(resolution, limits, scope.settings.bucket_ttl_multiplier),
        resolution.parent_id,
        resolution.cascade,
        metered,
    )


def paying(intent: Intent, writes: int) -> Intent:
    """The intent, as it pays for so many writes: a write that is lost wears the item out, too."""
    cost_milli = writes * ONE_WRITE_MILLI
    if intent.takes_milli.get(WCU, cost_milli) == cost_milli:
        return intent
    return intent._replace(takes_milli={**intent.takes_milli, WCU: cost_milli})


def paying_if_spare(intent: Intent, bucket: Bucket) -> Intent:
    """Return the intent of a write in a transaction: it pays for itself only where that cannot be
    what the transaction fails for."""
    takes_milli = {name: n for name, n in intent.takes_milli.items() if name != WCU}
    if WCU in bucket.cells and bucket.cells[WCU].tokens_milli >= _SPARE_MILLI:
        takes_milli[WCU] = ONE_WRITE_MILLI
    return intent._replace(takes_milli=takes_milli)


def _ttl_seconds(resolution: Resolution, limits: LimitSet, multiplier: int) -> int | None:
    """Buckets with limits of their own stay; others may go once they have long been full."""
    if resolution.has_own_limits or multiplier <= 0:
        return None
    return math.ceil(limits.seconds_to_fill * multiplier)


def adopt(scope: Scope, progress: Progress, resolution: Resolution) -> None:
    """Replace limits from the cache by those that were just read from the store."""
    charge, limits = progress.charge, resolution.limits
    if charge.limits_from is not LimitsFrom.CACHE:
        return
    if limits is None:
        progress.charge = charge._replace(limits_from=LimitsFrom.STORE)
        return
    if charge.is_leaf:
        require_known(charge.wanted_milli, limits, "consume")
    intent = intent_for(scope, resolution, limits, charge.wanted_milli, charge.intent.acquires)
    if intent.takes_milli != charge.intent.takes_milli:
        # A write of the old amounts that lands late must not be taken for one of the new.
        progress.operation = progress.new_operation(scope)
    progress.charge = charge._replace(intent=intent, limits_from=LimitsFrom.STORE)


def require_known(wanted_milli: Mapping[str, int], limits: LimitSet, field_name: str) -> None:
    """Refuse names that no limit has."""
    for name in wanted_milli:
        if name not in limits.by_name:
            known = ", ".join(sorted(limits.by_name))
            raise ValidationError(field_name, name, f"no limit named '{name}' (known: {known})")


def status_of(outcome: Taken | Shortage) -> list[LimitStatus]:
    """The status of each limit of a bucket towards the request."""
    progress = outcome.progress
    shards = outcome.shards if isinstance(outcome, Shortage) else _before(progress)
    charge = progress.charge
    home, takes_milli = charge.home, charge.intent.takes_milli
    return statuses(home.entity_id, home.resource, shards, charge.limits, takes_milli)


def _before(progress: Progress) -> list[Bucket]:
    """The items as they were when the charge found enough in them. An item whose answer was lost
    was read later, and may have come to carry other limits."""
    before = []
    for bucket, entry in zip(progress.shards, progress.entries, strict=True):
        given_milli = {name: -taken_milli for name, taken_milli in entry.charged_milli.items()}
        found = take_tokens(stamp(bucket, progress.charge.limits), given_milli, 0)
        before.append(refill(found, progress.as_of_ms))
    return before


def current_items(charge: Charge, shards: Sequence[Bucket], now_ms: int) -> list[Bucket]:
    """The items of a bucket as they stand now; a bucket that does not exist is full."""
    if not shards:
        return [full_bucket(charge.limits, now_ms)]
    return [at(bucket, charge.limits, now_ms) for bucket in shards]
