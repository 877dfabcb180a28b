"""The migrations, and the version record that is moved on after each.

    schema 0.8 or older   no client of this version is let in
    schema 0.9            entities, limits and settings are in place; clients of this version move
                          each bucket that they need, and the migration moves all others
    schema 0.10           nothing is left to move

Meanwhile the record lets no older client in: it would take a bucket that is not moved yet for a
new one, and make it full.
"""

from __future__ import annotations

from dataclasses import replace

from .._version import __version__
from ..backends.dynamodb.lifecycle import add_missing_indexes
from ..backends.dynamodb.older.moving import Mover, MoveTally
from ..backends.dynamodb.schema import key, sk_version
from ..flows.admin.namespaces import register
from ..naming import DEFAULT_NAMESPACE
from ..ports.deployment import VersionRecord
from .registry import MigrationRun

_OPEN_TO_ALL = "0.0.0"
_OLD_VERSION_PARTITION = "SYSTEM#"


async def migrate_records(run: MigrationRun) -> MoveTally:
    """Add indexes that the table lacks, move entities, limits and settings, then let clients of
    this version in."""
    if not run.dry_run:
        await add_missing_indexes(run.store.table)
    tally = await (await _mover(run)).move_records()
    await _move_on(run, tally, "0.9.0", client_min_version=__version__)
    return tally


async def migrate_buckets(run: MigrationRun) -> MoveTally:
    """Move buckets, usage and audit events, then let all clients in."""
    tally = await (await _mover(run)).move_the_rest()
    await _move_on(run, tally, "0.10.0", client_min_version=_OPEN_TO_ALL)
    return tally


async def _mover(run: MigrationRun) -> Mover:
    """Return a mover for the table. Keys without a namespace become those of `default`."""
    store = run.store
    if run.dry_run:
        found = await store.namespaces.read(DEFAULT_NAMESPACE)
        first_id = DEFAULT_NAMESPACE if found is None else found.namespace_id
    else:
        first_id = (await register(store, store.table.io, DEFAULT_NAMESPACE)).namespace_id
    return Mover(store.table, first_id, dry_run=run.dry_run, report=run.report)


async def _move_on(
    run: MigrationRun, tally: MoveTally, version: str, *, client_min_version: str
) -> None:
    """Write the version that the table has now, unless something was left behind."""
    if run.dry_run or run.is_held_back or tally.unreadable:
        return
    store = run.store
    stored = await store.versions.read() or VersionRecord(version)
    changed = replace(
        stored,
        schema_version=version,
        client_min_version=client_min_version,
        updated_by=f"migration:{__version__}",
    )
    await store.versions.write(changed)
    await store.table.delete(key(_OLD_VERSION_PARTITION, sk_version()))
