"""What a key takes of a table: asked of the code that reads and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from zae_limiter import Limit
from zae_limiter.backends.dynamodb.bucket_codec import encode_bucket
from zae_limiter.backends.dynamodb.wire.values import Item
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.composite import BucketAddress, full_bucket, take
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.limit import LimitSet
from zae_limiter.flows.resolve import resolve
from zae_limiter.flows.scope import Scope
from zae_limiter.ports.repository_protocol import ConfigPage
from zae_limiter.runtime.blocking import run

from ..item_size import item_bytes
from .events import START_US, Events, VirtualIo

# Reckoned by AWS for each item, and for each entry of an index, beside what is in it.
_OVERHEAD_BYTES = 100
_INDEXES = ("GSI2", "GSI3", "GSI4")
_RESOURCE = "gpt-4"
_LIMITS = [Limit.per_minute("rpm", 600), Limit.per_minute("tpm", 100_000)]


@dataclass(frozen=True, slots=True)
class ConfigReads:
    """What a process reads when it knows nothing of a key: records, and how many of them are
    the one record that all keys share."""

    records: float
    system_records: float


def config_reads(keys: int = 100) -> ConfigReads:
    """The average over keys that come one after the other."""
    store = _Counting()
    scope = Scope(store, VirtualIo(Events(), Random(0), 0), "n")
    for number in range(keys):
        run(resolve(scope, f"key-{number}", _RESOURCE))
    return ConfigReads(store.records / keys, store.system_records / keys)


class _Counting(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        self.system_records = 0
        self._read = self.configs.read
        self.configs.read = self._counted  # type: ignore[method-assign]

    async def _counted(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        self.records += len(slots) + (entity_id is not None)
        self.system_records += SYSTEM_SLOT in slots
        return await self._read(namespace_id, slots, entity_id)


def bucket_bytes() -> int:
    """A bucket of two limits in use, its index entries included, as AWS bills storage."""
    address = BucketAddress("a1b2c3d4e5f", "key-0123456789abcdef", _RESOURCE)
    bucket = full_bucket(LimitSet.of(_LIMITS), START_US // 1000, metered=True)
    io = VirtualIo(Events(), Random(0), 0)
    recent = tuple(io.operation_id() for _ in range(4))
    used = take(bucket, {"rpm": 1000, "tpm": 500_000, "wcu": 1000}, 1, recent)
    item = encode_bucket(address, used._replace(parent_id="org-0123456789abcdef"))
    entries = sum(item_bytes(_entry(item, index)) + _OVERHEAD_BYTES for index in _INDEXES)
    return item_bytes(item) + _OVERHEAD_BYTES + entries


def _entry(item: Item, index: str) -> Item:
    """All that an index of keys alone has of an item."""
    return {name: item[name] for name in ("PK", "SK", f"{index}PK", f"{index}SK")}
