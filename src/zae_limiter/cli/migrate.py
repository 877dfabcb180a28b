"""`zae-limiter migrate` brings a table of an older schema to today's."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from ..backends.dynamodb.older.moving import MoveTally
from ..backends.dynamodb.store import DynamoStore
from ..backends.store_url import OpenRequest
from ..backends.urls import parse_url
from ..core.exceptions import ValidationError
from ..core.validation import RESERVED_NAMESPACE
from ..core.versions import CURRENT_SCHEMA_VERSION, UNKNOWN_SCHEMA_VERSION, is_on_the_way
from ..flows.admin.versions import require_deployable
from ..flows.scope import Scope
from ..migrations import apply_migrations, get_migrations_between
from ..naming import DEFAULT_NAMESPACE
from ..repository import Repository
from ..runtime.asyncio_driver import AsyncioIo
from .options import examples, json_option, registry_options, yes_option
from .output import print_json
from .target import Target

# Nobody waits for a single call of a migration, and a busy table may take its time.
_PATIENCE_S = 60


@click.command(
    epilog=examples(
        "migrate --name my-stack --dry-run", "migrate --name my-stack", on_a_store=False
    )
)
@click.option("--dry-run", is_flag=True, help="Count what would be moved, and change nothing.")
@yes_option
@json_option
@registry_options
def migrate(dry_run: bool, yes: bool, as_json: bool, target: Target) -> None:
    """Bring a table of an older schema to today's.

    Stop all clients of older versions first, and back the table up. Entities, limits and settings
    are moved while no client is let in; then clients of this version may work, and buckets, usage
    and audit events are moved beside them. A migration that was interrupted goes on where it was
    when the command is run again.
    """
    target.require_shared()
    asyncio.run(_migrate(target, dry_run=dry_run, yes=yes, as_json=as_json))


async def _migrate(target: Target, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    io = AsyncioIo()
    url = parse_url(target.url).with_timeouts(_PATIENCE_S, _PATIENCE_S)
    store = await url.open(io, OpenRequest(create=False, blocking=False))
    try:
        if not isinstance(store, DynamoStore):
            raise ValidationError("url", target.url, "is no DynamoDB table: it needs no migration")
        record = store.opened_version
        if record is not None:
            # A migration replaces no Lambda, so a newer one is none of its business.
            require_deployable(record, store.table.name, allow_downgrade=True)
        schema = UNKNOWN_SCHEMA_VERSION if record is None else record.schema_version
        if record is not None and not is_on_the_way(schema):
            _finish(as_json, dry_run, schema, [], MoveTally())
            return
        if not (dry_run or yes):
            _ask(store.table.name, schema)
        seen = _Progress(as_json)
        repository = Repository.on_scope(
            Scope(store, io, RESERVED_NAMESPACE), DEFAULT_NAMESPACE, owns_store=False
        )
        applied = await apply_migrations(repository, schema, dry_run=dry_run, report=seen.report)
        _finish(as_json, dry_run, schema, applied, seen.total())
    finally:
        await store.close()
        await io.close()


def _ask(table_name: str, schema: str) -> None:
    click.echo(
        f"Table '{table_name}' has schema {schema}; {CURRENT_SCHEMA_VERSION} is next:", err=True
    )
    for migration in get_migrations_between(schema, CURRENT_SCHEMA_VERSION):
        click.echo(f"  {migration.version}  {migration.description}", err=True)
    click.echo("To back the table up:", err=True)
    click.echo(
        f"  aws dynamodb create-backup --table-name {table_name}"
        f" --backup-name before-{CURRENT_SCHEMA_VERSION}",
        err=True,
    )
    click.confirm("Are all clients of older versions stopped?", abort=True, err=True)


class _Progress:
    """Progress is one line for each page of the table, on standard error."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._tallies: list[MoveTally] = []

    def report(self, tally: MoveTally) -> None:
        if not any(tally is known for known in self._tallies):
            self._tallies.append(tally)
        if not self._as_json:
            moved = sum(tally.moved.values())
            click.echo(f"  {tally.scanned:,} records read, {moved:,} to move", err=True)

    def total(self) -> MoveTally:
        total = MoveTally(scanned=max((each.scanned for each in self._tallies), default=0))
        for each in self._tallies:
            total.moved += each.moved
        return total


def _finish(
    as_json: bool, dry_run: bool, schema: str, applied: list[str], total: MoveTally
) -> None:
    now = schema if dry_run or not applied else applied[-1]
    if as_json:
        told: dict[str, Any] = {"from": schema, "to": now, "dry_run": dry_run, "applied": applied}
        print_json({**told, "moved": dict(total.moved)})
        return
    if not applied:
        click.echo(f"Nothing to do: the table has schema {schema}")
        return
    verb = "Would move" if dry_run else "Moved"
    for kind, count in sorted(total.moved.items()):
        click.echo(f"{verb} {count:,} {kind}")
    if dry_run:
        click.echo(f"The table keeps schema {schema}")
    else:
        click.echo(f"The table has schema {now}")
    sys.stdout.flush()
