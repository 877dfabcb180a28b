"""The registry of migrations, in the order of the schema versions that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..backends.dynamodb.older.moving import MoveTally, ReportMove
from ..backends.dynamodb.store import DynamoStore
from ..core.exceptions import StoredDataError, ValidationError
from ..core.versions import CURRENT_SCHEMA_VERSION, parse_version
from ..repository_base import RepositoryBase


@dataclass(frozen=True, slots=True)
class MigrationRun:
    """A run of a migration on one table. A dry run counts and changes nothing; `report` is told of
    progress. `is_held_back`: an earlier migration left records behind, so the schema version stays
    as it is."""

    store: DynamoStore
    dry_run: bool
    report: ReportMove
    is_held_back: bool = False


Migrate = Callable[[MigrationRun], Coroutine[Any, Any, MoveTally]]


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration leads to a schema version. It can be interrupted and repeated.

    `needs_earlier`: it is not run where an earlier migration had to leave a record behind.
    """

    version: str
    description: str
    migrate: Migrate
    reversible: bool = False
    rollback: Migrate | None = None
    needs_earlier: bool = True


_migrations: list[Migration] = []


def register_migration(migration: Migration) -> None:
    """Add a migration. Its version must be new."""
    if any(each.version == migration.version for each in _migrations):
        raise ValueError(f"there is a migration to {migration.version} already")
    _migrations.append(migration)
    _migrations.sort(key=lambda each: parse_version(each.version))


def get_migrations() -> list[Migration]:
    """Return all migrations, the oldest first."""
    return list(_migrations)


def get_migrations_between(from_version: str, to_version: str) -> list[Migration]:
    """Return the migrations that lead from one schema version to another."""
    first, last = parse_version(from_version), parse_version(to_version)
    return [each for each in _migrations if first < parse_version(each.version) <= last]


def _ignore(tally: MoveTally) -> None:
    pass


async def apply_migrations(
    repository: RepositoryBase,
    from_version: str,
    to_version: str = CURRENT_SCHEMA_VERSION,
    *,
    dry_run: bool = False,
    report: ReportMove = _ignore,
) -> list[str]:
    """Migrate the table of a repository, and return the versions that it went through.

    A record that cannot be read ends the run, after all others were moved: mend or delete it, and
    apply the migrations again.
    """
    store = repository.scope.store
    if not isinstance(store, DynamoStore):
        raise ValidationError(
            "repository", repository.stack_name, "is no DynamoDB table: it needs no migration"
        )
    applied: list[str] = []
    failed: list[MoveTally] = []
    for migration in get_migrations_between(from_version, to_version):
        if failed and migration.needs_earlier:
            break
        run = MigrationRun(store, dry_run, report, is_held_back=bool(failed))
        tally = await migration.migrate(run)
        if tally.unreadable:
            failed.append(tally)
        applied.append(migration.version)
    if failed:
        raise _unreadable(failed)
    return applied


def _unreadable(failed: list[MoveTally]) -> StoredDataError:
    """Return the error that names the records that were left behind, or the first of very many."""
    count = sum(tally.unreadable for tally in failed)
    problems = [problem for tally in failed for problem in tally.problems]
    if len(problems) < count:
        problems.append(f"and {count - len(problems)} others")
    return StoredDataError(f"{count} records, which stay as they are", "; ".join(problems))
