"""The store in one SQLite file: its roles over a connection, and another for long questions.

Every write is one transaction, so a process that is killed leaves a consistent file.
"""

from __future__ import annotations

from ...core.models import BackendCapabilities
from ...core.stats import StoreTraffic
from ...local.breaker import Breaker
from ...ports.io import Io
from .audit import SqliteAudit
from .buckets import SqliteBuckets
from .configs import SqliteConfigs
from .connection import Connection
from .entities import SqliteEntities
from .file import locate
from .namespaces import SqliteNamespaces
from .receipts import SqliteReceipts
from .usage import SqliteUsage

LOCK_WAIT_S = 5.0


class SqliteStore:
    """All roles over one file."""

    capabilities = BackendCapabilities(
        supports_audit_logging=True,
        supports_usage_snapshots=True,
        supports_batch_operations=True,
    )

    def __init__(self, connection: Connection, reader: Connection) -> None:
        self._connections = (connection, reader)
        self._connection = connection
        self.buckets = SqliteBuckets(connection, reader)
        self.receipts = SqliteReceipts(connection)
        self.configs = SqliteConfigs(connection, reader)
        self.entities = SqliteEntities(connection, reader)
        self.namespaces = SqliteNamespaces(connection)
        self.audit = SqliteAudit(reader)
        self.usage = SqliteUsage(reader)

    @classmethod
    async def open(
        cls,
        path: str,
        io: Io,
        *,
        create: bool,
        wait_s: float = LOCK_WAIT_S,
        breaker_failures: int = 0,
    ) -> SqliteStore:
        """Open the store in the file at `path`.

        `create`: make the file if there is none; without it, a missing file raises
        `InfrastructureNotFoundError`. A call that finds the file locked for `wait_s` raises
        `StorageUnavailable`.
        """
        located = locate(path)
        connection = Connection(located, io, wait_s, Breaker(breaker_failures, located))
        await connection.open(create=create)
        reader = Connection(located, io, wait_s, times=connection.times, aside=True)
        return cls(connection, reader)

    def traffic(self) -> StoreTraffic:
        """Return the calls of both connections so far: `read` and `write`."""
        return self._connection.times.traffic()

    @property
    def breaker_state(self) -> str:
        """Whether writes are tried (closed), or refused because the file stays locked."""
        return self._connection.breaker.state

    async def ping(self) -> None:
        """Read from the file, under the lock of a writer."""
        await self._connection.write(
            lambda db: db.execute("SELECT 1 FROM namespaces LIMIT 1").fetchone()
        )

    async def check_file(self) -> list[str]:
        """Return what SQLite finds wrong with the file; nothing when all is well."""
        _, reader = self._connections
        told = await reader.select("PRAGMA quick_check(10)", ())
        return [text for (text,) in told if text != "ok"]

    async def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        for connection in self._connections:
            await connection.close()
