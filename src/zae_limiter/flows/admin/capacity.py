"""Questions about balances that take nothing."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterable, Mapping

from ...core.bucket import Bucket, BucketAddress, bucket_states, refill
from ...core.exceptions import StoredDataError, StoredDataWarning
from ...core.judge import judge_shards
from ...core.limit import MILLI, BucketState
from ...core.models import EntityCapacity, ResourceCapacity
from ...core.validation import (
    validate_amount,
    validate_identifier,
    validate_limit_name,
    validate_resource,
)
from ..acquire.charge import Charge, current_items
from ..acquire.request import Request, plan_charges
from ..scope import Scope, bounded
from ..shards.items import read_all, without_remnants

_READ_AT_ONCE = 32


async def _views(scope: Scope, request: Request) -> list[tuple[Charge, list[Bucket]]]:
    """Every level, with the items of its bucket as they stand now."""
    planned = await plan_charges(scope, request)
    found = [await read_all(scope, charge.home) for charge in planned]
    now_ms = scope.io.now_ms()
    return [
        (charge, current_items(charge, list(shards.values()), now_ms))
        for charge, shards in zip(planned, found, strict=True)
    ]


@bounded
async def available(scope: Scope, request: Request) -> dict[str, int]:
    """Tell how much of each limit of the entity could be taken now, ancestors included."""
    views = await _views(scope, request)
    return {
        name: min(_held(shards, name) for charge, shards in views if name in charge.limits.by_name)
        for name in views[0][0].limits.by_name
    }


def _held(shards: Iterable[Bucket], name: str) -> int:
    return sum(shard.cells[name].tokens_milli for shard in shards) // MILLI


@bounded
async def time_until_available(scope: Scope, request: Request) -> float:
    """Seconds until the request would fit at every level; infinite when it never will."""
    views = await _views(scope, request)
    waits_ms = [judge_shards(s, charge.intent.takes_milli).wait_ms for charge, s in views]
    return max(waits_ms) / 1000


async def get_buckets(
    scope: Scope, entity_id: str, resource: str | None, shard_id: int | None
) -> list[BucketState]:
    """The stored state of an entity's buckets. A single one must be readable."""
    validate_identifier(entity_id)
    if shard_id is not None:
        validate_amount("shard_id", shard_id)
    if resource is None:
        stored = await scope.store.buckets.of_entity(scope.namespace_id, entity_id)
        found = without_remnants(stored)
    else:
        found = await _items(scope, entity_id, validate_resource(resource), shard_id)
    return [
        state
        for address, bucket in found.items()
        if shard_id in (None, address.shard)
        for state in bucket_states(address, bucket)
    ]


async def _items(
    scope: Scope, entity_id: str, resource: str, shard_id: int | None
) -> dict[BucketAddress, Bucket]:
    home = BucketAddress(scope.namespace_id, entity_id, resource)
    if shard_id is None:
        return await read_all(scope, home)
    shard = home._replace(shard=shard_id)
    found = await scope.store.buckets.read([home, shard] if shard_id else [home])
    return without_remnants(found)


async def get_resource_buckets(
    scope: Scope, resource: str, limit_name: str | None
) -> list[BucketState]:
    """The stored state of a resource's buckets over all entities."""
    if limit_name is not None:
        validate_limit_name(limit_name, "limit_name")
    stored = await scope.store.buckets.of_resource(scope.namespace_id, validate_resource(resource))
    found = without_remnants(stored)
    states = [s for address, bucket in found.items() for s in bucket_states(address, bucket)]
    return [state for state in states if limit_name in (None, state.limit_name)]


async def get_resource_capacity(
    scope: Scope, resource: str, limit_name: str, parents_only: bool
) -> ResourceCapacity:
    """Sum up one limit of a resource over all entities that have a bucket."""
    validate_resource(resource)
    validate_limit_name(limit_name, "limit_name")
    entities: list[EntityCapacity] = []
    capacity = free = 0
    async for page in _pages(scope, resource):
        wanted = {
            address: bucket
            for address, bucket in without_remnants(page).items()
            if limit_name in bucket.cells.keys() - bucket.dormant
        }
        if parents_only:
            children = await _children(scope, wanted)
            wanted = {a: bucket for a, bucket in wanted.items() if a.entity_id not in children}
        now_ms = scope.io.now_ms()
        counted = {address: refill(bucket, now_ms) for address, bucket in wanted.items()}
        found_here = list(_entity_capacities(counted, limit_name))
        # Added up page by page: the sum over a million would hold up the event loop.
        capacity += sum(entity.capacity for entity in found_here)
        free += sum(entity.available for entity in found_here)
        entities += found_here
    return ResourceCapacity(
        resource, limit_name, capacity, free, _utilization_pct(capacity, free), entities
    )


async def _pages(scope: Scope, resource: str) -> AsyncIterator[dict[BucketAddress, Bucket]]:
    """Yield the buckets of a resource, page after page, with all items of a bucket together."""
    cursor: str | None = None
    while True:
        page, cursor = await scope.store.buckets.of_resource_after(
            scope.namespace_id, resource, cursor
        )
        yield page
        if cursor is None:
            return


async def _children(scope: Scope, buckets: Mapping[BucketAddress, Bucket]) -> set[str]:
    """Entities with a parent. A bucket that names one is right; one that does not may have
    been stamped before its entity was made."""
    named = {address.entity_id for address, bucket in buckets.items() if bucket.parent_id}
    doubtful = sorted({address.entity_id for address in buckets} - named)
    for start in range(0, len(doubtful), _READ_AT_ONCE):
        ids = doubtful[start : start + _READ_AT_ONCE]
        reads = [scope.store.entities.read(scope.namespace_id, entity_id) for entity_id in ids]
        for entity in await scope.io.gather(reads):
            if isinstance(entity, StoredDataError):
                warnings.warn(StoredDataWarning(entity), stacklevel=2)
            elif isinstance(entity, BaseException):
                raise entity
            elif entity is not None and entity.parent_id is not None:
                named.add(entity.id)
    return named


def _entity_capacities(
    buckets: dict[BucketAddress, Bucket], limit_name: str
) -> Iterable[EntityCapacity]:
    tokens_milli: dict[str, int] = {}
    capacities: dict[str, int] = {}
    # Items adopt a changed limit one by one; item 0 stands for the bucket.
    for address, bucket in sorted(buckets.items()):
        cell = bucket.cells[limit_name]
        capacities.setdefault(address.entity_id, cell.capacity_milli // MILLI)
        held = tokens_milli.get(address.entity_id, 0)
        tokens_milli[address.entity_id] = held + cell.tokens_milli
    for entity_id, capacity in sorted(capacities.items()):
        free = tokens_milli[entity_id] // MILLI
        yield EntityCapacity(entity_id, capacity, free, _utilization_pct(capacity, free))


def _utilization_pct(capacity: int, free: int) -> float:
    return (capacity - free) / capacity * 100 if capacity else 0.0


@bounded
async def get_bucket(
    scope: Scope, entity_id: str, resource: str, limit_name: str, shard_id: int
) -> BucketState | None:
    """The stored state of one limit of one shard of a bucket."""
    validate_limit_name(limit_name, "limit_name")
    states = await get_buckets(scope, entity_id, resource, shard_id)
    return next((state for state in states if state.limit_name == limit_name), None)
