"""`zae-limiter bucket` shows how much could be taken now, and takes nothing."""

from __future__ import annotations

import math
from typing import Any

import click

from ..core.limit import MILLI, Limit
from ..sync_limiter import SyncRateLimiter
from ..sync_repository import SyncRepository
from .limit_syntax import format_rate
from .options import examples, json_option, store_options
from .output import print_json, print_table
from .target import Target

_SOURCES = {
    "entity": "the entity's own for this resource",
    "entity_default": "the entity's own for all resources",
    "resource": "the resource's defaults",
    "system": "the system's defaults",
}


@click.group()
def bucket() -> None:
    """Balances of buckets."""


@bucket.command(epilog=examples("bucket show key-1 gpt-4"))
@click.argument("entity_id")
@click.argument("resource")
@json_option
@store_options
def show(entity_id: str, resource: str, as_json: bool, target: Target) -> None:
    """Show how much an entity could take of a resource now, its ancestors' limits included.

    `Full in` says how long until all of the capacity could be taken at once.
    """
    with target.connect() as repository:
        shown = _balances(repository, entity_id, resource)
    if as_json:
        print_json(shown)
        return
    click.echo(f"Limits: {_SOURCES.get(shown['source'], 'none')}")
    print_table(
        ["Limit", "Rate", "Capacity", "Available", "Consumed", "Full in"],
        [_row(each) for each in shown["limits"]],
        right=["Rate", "Capacity", "Available", "Consumed", "Full in"],
    )


def _balances(repository: SyncRepository, entity_id: str, resource: str) -> dict[str, Any]:
    limiter = SyncRateLimiter(repository)
    available = limiter.available(entity_id, resource)
    limits, _, source = repository.resolve_limits(entity_id, resource)
    return {
        "entity_id": entity_id,
        "resource": resource,
        "source": source,
        "limits": [
            {
                **limit.to_dict(),
                "available": available[limit.name],
                "consumed": _consumed(repository, entity_id, resource, limit),
                "full_in_seconds": _full_in_seconds(limiter, entity_id, resource, limit),
            }
            for limit in limits or ()
        ],
    }


def _consumed(repository: SyncRepository, entity_id: str, resource: str, limit: Limit) -> int:
    states = repository.get_buckets(entity_id, resource)
    used_milli = (s.total_consumed_milli or 0 for s in states if s.limit_name == limit.name)
    return sum(used_milli) // MILLI


def _full_in_seconds(
    limiter: SyncRateLimiter, entity_id: str, resource: str, limit: Limit
) -> float | None:
    """Return the seconds until the bucket is full; None when an ancestor's capacity is smaller."""
    seconds = limiter.time_until_available(entity_id, resource, {limit.name: limit.capacity})
    return None if math.isinf(seconds) else seconds


def _row(shown: dict[str, Any]) -> tuple[str, ...]:
    seconds = shown["full_in_seconds"]
    return (
        shown["name"],
        format_rate(Limit.from_dict(shown)),
        f"{shown['capacity']:,}",
        f"{shown['available']:,}",
        f"{shown['consumed']:,}",
        "never" if seconds is None else f"{seconds:,.1f} s",
    )
