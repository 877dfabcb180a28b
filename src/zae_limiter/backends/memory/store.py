"""A store in this process's memory: `core.apply.apply` over dictionaries.

Made for tests, demonstrations and limits that no other process shares. Every method is
atomic under one lock and never suspends, so both drivers and any number of threads may
use one store.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from ...core.apply import apply
from ...core.models import BackendCapabilities
from ...local.fork_safety import free_in_child
from ...ports.repository_protocol import StoreClosed
from ..locked_buckets import Apply
from .audit import MemoryAudit
from .buckets import MemoryBuckets
from .configs import MemoryConfigs
from .entities import MemoryEntities
from .images import MemoryImages
from .namespaces import MemoryNamespaces
from .receipts import MemoryReceipts
from .tables import Tables
from .usage import MemoryUsage


class _Closed(AbstractContextManager[object]):
    """The lock of a store that has been closed: nobody gets it."""

    def __enter__(self) -> object:
        raise StoreClosed("the store memory:// has been closed")

    def __exit__(self, *error: object) -> None:
        """Do nothing: it has never been entered."""


class MemoryStore:
    """All roles over one set of tables."""

    capabilities = BackendCapabilities(
        supports_audit_logging=True,
        supports_usage_snapshots=True,
        supports_batch_operations=True,
    )

    def __init__(self, apply: Apply = apply) -> None:
        lock = threading.RLock()
        free_in_child(lock)
        self._tables = tables = Tables(lock)
        self.images = MemoryImages(tables)
        self.buckets = MemoryBuckets(tables, apply)
        self.receipts = MemoryReceipts(tables, self.buckets, apply)
        self.configs = MemoryConfigs(tables)
        self.entities = MemoryEntities(tables)
        self.namespaces = MemoryNamespaces(tables)
        self.audit = MemoryAudit(tables)
        self.usage = MemoryUsage(tables)

    async def ping(self) -> None:
        """Refuse if the store has been closed; else memory is always there."""
        with self._tables.lock:
            pass

    async def close(self) -> None:
        """Refuse whoever comes later. The data goes with the last reference to it."""
        self._tables.lock = _Closed()
