"""Balances of many buckets at once, for operators."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.bucket import Bucket, BucketAddress, refill
from ...core.exceptions import ValidationError
from ...core.limit import MILLI
from ...core.models import BucketBalance
from ...core.validation import WCU, validate_identifier, validate_resource
from ..scope import Scope
from ..shards.items import without_remnants


async def get_balances(
    scope: Scope, entity_id: str | None, resource: str | None
) -> list[BucketBalance]:
    """The balances as of now of all buckets of an entity, of a resource, or of both."""
    if entity_id is not None:
        validate_identifier(entity_id)
    if resource is not None:
        validate_resource(resource)
    found = without_remnants(await _items(scope, entity_id, resource))
    now_ms = scope.io.now_ms()
    split: dict[BucketAddress, list[Bucket]] = {}
    for address, bucket in sorted(found.items()):
        if resource in (None, address.resource):
            split.setdefault(address.home, []).append(refill(bucket, now_ms))
    return [each for home, shards in split.items() for each in _balances(home, shards)]


async def _items(
    scope: Scope, entity_id: str | None, resource: str | None
) -> Mapping[BucketAddress, Bucket]:
    buckets = scope.store.buckets
    if entity_id is not None:
        return await buckets.of_entity(scope.namespace_id, entity_id)
    if resource is not None:
        return await buckets.of_resource(scope.namespace_id, resource)
    raise ValidationError("resource", None, "name an entity or a resource")


def _balances(home: BucketAddress, shards: list[Bucket]) -> list[BucketBalance]:
    """Return the balance of each limit in force, over all items of the bucket."""
    names = [name for name in shards[0].cells if name != WCU and name not in shards[0].dormant]
    balances = []
    for name in sorted(names):
        cells = [shard.cells[name] for shard in shards if name in shard.cells]
        balances.append(
            BucketBalance(
                home.entity_id,
                home.resource,
                name,
                cells[0].capacity_milli // MILLI,
                sum(cell.tokens_milli for cell in cells) // MILLI,
                sum(cell.consumed_milli for cell in cells) // MILLI,
                len(shards),
            )
        )
    return balances
