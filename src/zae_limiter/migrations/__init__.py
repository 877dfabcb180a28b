"""Migrations bring a table of an older schema to today's, version by version.

Read `registry` first (the list of migrations), then `steps` (the two that exist, and the version
record that tells clients how far the table is).
"""

from .registry import (
    Migration,
    MigrationRun,
    apply_migrations,
    get_migrations,
    get_migrations_between,
    register_migration,
)
from .steps import migrate_buckets, migrate_records

__all__ = [
    "Migration",
    "MigrationRun",
    "apply_migrations",
    "get_migrations",
    "get_migrations_between",
    "register_migration",
]

register_migration(
    Migration(
        "0.9.0",
        "Entities, limits and settings move to keys with a namespace, one flat record each."
        " No client may be at work.",
        migrate_records,
    )
)
register_migration(
    Migration(
        "0.10.0",
        "Buckets move to items of their own, and usage and audit events to keys with a namespace."
        " Clients of this version may be at work.",
        migrate_buckets,
        needs_earlier=False,
    )
)
