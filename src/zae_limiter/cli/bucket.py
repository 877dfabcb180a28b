"""`zae-limiter bucket` shows how much could be taken now, and takes nothing."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import click

from ..core.limit import MILLI, Limit
from ..core.limit_syntax import format_rate
from ..core.models import BucketBalance
from ..sync_limiter import SyncRateLimiter
from ..sync_repository import SyncRepository
from .options import examples, json_option, store_options
from .output import print_json, print_line, print_table
from .target import Target
from .watching import watch_option, watched

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
    print_line(f"Limits: {_SOURCES.get(shown['source'], 'none')}")
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


@bucket.command("list", epilog=examples("bucket list -r gpt-4", "bucket list -e key-1"))
@click.option("--entity", "-e", "entity_id", help="The entity whose buckets to list.")
@click.option("--resource", "-r", help="The resource whose buckets to list.")
@json_option
@store_options
def list_buckets(
    entity_id: str | None, resource: str | None, as_json: bool, target: Target
) -> None:
    """List the balances of all buckets of an entity or of a resource."""
    if entity_id is None and resource is None:
        raise click.UsageError("Name an entity (-e) or a resource (-r).")
    with target.connect() as repository:
        found = repository.get_balances(entity_id, resource)
    if as_json:
        print_json([_shown(each) for each in found])
    elif not found:
        print_line("No buckets: nothing has been acquired yet, or all have expired.")
    else:
        _print_balances(found)


@bucket.command(
    epilog=examples("bucket top -r gpt-4", "bucket top -r gpt-4 --limit-name tpm --rows 3")
)
@click.option("--resource", "-r", required=True, help="The resource.")
@click.option("--limit-name", help="The limit; by default all of them.")
@click.option(
    "--rows", type=click.IntRange(1), default=10, show_default=True, help="How many to show."
)
@watch_option
@json_option
@store_options
def top(
    resource: str,
    limit_name: str | None,
    rows: int,
    watch: float | None,
    as_json: bool,
    target: Target,
) -> None:
    """Show the buckets that are nearest to a limit, the fullest use first."""
    with target.connect() as repository:

        def show() -> None:
            nearest = _nearest(repository, resource, limit_name)[:rows]
            if as_json:
                print_json([_shown(each) for each in nearest])
            else:
                _print_balances(nearest)

        watched(watch, show, as_text=not as_json)


def _nearest(
    repository: SyncRepository, resource: str, limit_name: str | None
) -> list[BucketBalance]:
    found = [
        each
        for each in repository.get_balances(resource=resource)
        if limit_name in (None, each.limit_name)
    ]
    return sorted(found, key=lambda each: (-each.used_pct, each.entity_id))


def _shown(balance: BucketBalance) -> dict[str, Any]:
    return {**asdict(balance), "used_pct": round(balance.used_pct, 3)}


def _print_balances(found: list[BucketBalance]) -> None:
    numbers = ["Capacity", "Available", "Used", "Consumed", "Shards"]
    rows = [
        (
            each.entity_id,
            each.resource,
            each.limit_name,
            f"{each.capacity:,}",
            f"{each.available:,}",
            f"{each.used_pct:.1f} %",
            f"{each.consumed:,}",
            each.shards,
        )
        for each in found
    ]
    print_table(["Entity", "Resource", "Limit", *numbers], rows, right=numbers)
