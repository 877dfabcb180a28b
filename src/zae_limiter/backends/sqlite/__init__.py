"""The store in one SQLite file, shared by all processes of a machine.

Read `schema.sql`, then `connection` (one transaction for each call), `codec` (values to rows) and
`buckets`. `file` opens and checks the file, `waiting` waits for its lock, `errors` translates the
failures of SQLite, `rows` are the statements on one bucket row, `url` is how the store is named.
"""

from .store import SqliteStore

__all__ = ["SqliteStore"]
