"""The store in memory: `core.apply` over dictionaries, under one lock.

Read `tables` (the dictionaries), then `buckets`, then any other role. `readings` counts usage,
`images` shows the buckets themselves, `url` is how the store is named.
"""

from .store import MemoryStore

__all__ = ["MemoryStore"]
