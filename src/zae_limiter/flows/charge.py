"""Charging one bucket: begin with what is known of it, then follow what the store answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.composite import Bucket, BucketAddress, at, full_bucket
from ..core.composite import take as uncharged
from ..core.exceptions import StorageUnavailable, ValidationError
from ..core.judge import judge, statuses
from ..core.ledger import Entry
from ..core.limit import LimitSet
from ..core.models import LimitStatus
from ..core.planner import Intent, Short, plan, plan_create, plan_first, plan_restamp
from ..core.writes import Absent, Granted, Outcome, Refused, Write
from .config_cache import Resolution
from .resolve import resolve_afresh
from .scope import Scope
from .send import send

# Each failed attempt means that another client succeeded; a bound keeps it finite.
_MAX_ATTEMPTS = 64


@dataclass(slots=True)
class Charge:
    """One bucket that a request is about to charge.

    `overridden`: the caller brought the limits, so there is nothing to resolve again.
    `sent`: a write whose outcome is not known yet, or will never be.
    """

    address: BucketAddress
    intent: Intent
    wanted_milli: Mapping[str, int]
    is_leaf: bool
    overridden: bool
    sent: Write | None = None
    entry: Entry | None = None
    bucket: Bucket | None = None

    @property
    def limits(self) -> LimitSet:
        return self.intent.limits


@dataclass(frozen=True, slots=True)
class Taken:
    """The bucket was charged."""

    charge: Charge


@dataclass(frozen=True, slots=True)
class Shortage:
    """The bucket, as it stands, cannot cover the charge. Nothing was taken from it."""

    charge: Charge
    bucket: Bucket
    wait_ms: float


def intent_for(
    resolution: Resolution,
    limits: LimitSet,
    wanted_milli: Mapping[str, int],
    ttl_multiplier: int,
    acquires: int = 1,
) -> Intent:
    """What to ask of a bucket that carries these limits: only what it limits."""
    takes_milli = (
        wanted_milli
        if wanted_milli.keys() <= limits.by_name.keys()
        else {n: amount for n, amount in wanted_milli.items() if n in limits.by_name}
    )
    return Intent(
        limits,
        takes_milli,
        acquires,
        _ttl_seconds(resolution, limits, ttl_multiplier),
        resolution.parent_id,
        resolution.cascade,
    )


def _ttl_seconds(resolution: Resolution, limits: LimitSet, multiplier: int) -> int | None:
    """Buckets with limits of their own stay; others may go once they have long been full."""
    if resolution.source in ("entity", "entity_default") or multiplier <= 0:
        return None
    return int(limits.seconds_to_fill * multiplier)


def require_known(wanted_milli: Mapping[str, int], limits: LimitSet, field_name: str) -> None:
    """Refuse names that no limit has."""
    for name in wanted_milli:
        if name not in limits.by_name:
            known = ", ".join(sorted(limits.by_name))
            raise ValidationError(field_name, name, f"no limit named '{name}' (known: {known})")


async def take(scope: Scope, charge: Charge, *, speculative: bool = True) -> Taken | Shortage:
    """Charge the bucket, in one call when its balance is there."""
    outcome: Outcome
    if speculative:
        io, image = scope.io, scope.images.get(charge.address)
        charge.sent = plan_first(charge.intent, image, io.operation_id(), io.now_ms())
        outcome = await send(scope, charge.address, charge.sent)
    else:
        outcome = await _look(scope, charge)
    for _ in range(_MAX_ATTEMPTS):
        if isinstance(outcome, Granted):
            return _record(charge, outcome.bucket)
        charge.sent = None
        planned = await _plan(scope, charge, outcome)
        if isinstance(planned, Shortage):
            return planned
        charge.sent = planned
        outcome = await send(scope, charge.address, planned)
    raise StorageUnavailable(f"{charge.address} is too contended", retryable=True)


async def _look(scope: Scope, charge: Charge) -> Refused | Absent:
    bucket = (await scope.store.buckets.read([charge.address])).get(charge.address)
    return Absent() if bucket is None else Refused(bucket)


def _record(charge: Charge, bucket: Bucket) -> Taken:
    charge.entry = Entry(
        charge.address,
        frozenset(charge.limits.by_name),
        dict(charge.intent.takes_milli),
        charge.intent.acquires,
    )
    charge.bucket = bucket
    charge.sent = None
    return Taken(charge)


async def _plan(scope: Scope, charge: Charge, outcome: Refused | Absent) -> Write | Shortage:
    io = scope.io
    if isinstance(outcome, Absent):
        planned = plan_create(charge.intent, io.operation_id(), io.now_ms())
        return _shortage(charge, planned) if isinstance(planned, Short) else planned
    bucket = outcome.bucket
    if bucket.fingerprint != charge.limits.fingerprint:
        await _adopt(scope, charge)
    decided = plan(charge.intent, bucket, io.operation_id(), io.now_ms())
    if not isinstance(decided, Short):
        return decided
    if bucket.fingerprint != charge.limits.fingerprint:
        await _restamp(scope, charge, bucket)
    return _shortage(charge, decided)


def _shortage(charge: Charge, short: Short) -> Shortage:
    return Shortage(charge, short.bucket, judge(short.bucket, charge.intent.takes_milli).wait_ms)


async def _adopt(scope: Scope, charge: Charge) -> None:
    """The bucket carries other limits than we knew: look once whether ours are out of date."""
    if charge.overridden:
        return
    charge.overridden = True
    resolution = await resolve_afresh(scope, charge.address.entity_id, charge.address.resource)
    if resolution.limits is None:
        return
    if charge.is_leaf:
        require_known(charge.wanted_milli, resolution.limits, "consume")
    charge.intent = intent_for(
        resolution,
        resolution.limits,
        charge.wanted_milli,
        scope.bucket_ttl_multiplier,
        charge.intent.acquires,
    )


async def _restamp(scope: Scope, charge: Charge, bucket: Bucket) -> None:
    """Put our limits in force though we take nothing; losing a race here loses nothing."""
    io = scope.io
    write = plan_restamp(charge.intent, bucket, io.operation_id(), io.now_ms())
    try:
        await send(scope, charge.address, write)
    except StorageUnavailable:
        return


def status_of(outcome: Taken | Shortage) -> list[LimitStatus]:
    """How each limit of a bucket stood towards the request."""
    charge = outcome.charge
    bucket = outcome.bucket if isinstance(outcome, Shortage) else _before(charge)
    address = charge.address
    return statuses(
        address.entity_id, address.resource, bucket, charge.limits, charge.intent.takes_milli
    )


def _before(charge: Charge) -> Bucket:
    """The bucket as it was when the charge found enough in it."""
    assert charge.bucket is not None
    returned_milli = {name: -amount for name, amount in charge.intent.takes_milli.items()}
    return uncharged(charge.bucket, returned_milli, 0)


def view(charge: Charge, bucket: Bucket | None, now_ms: int) -> Bucket:
    """The bucket as it stands now; one that does not exist is full."""
    if bucket is None:
        return full_bucket(charge.limits, now_ms)
    return at(bucket, charge.limits, now_ms)
