"""What a key takes of a table: asked of the code that reads and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from zae_limiter import Limit
from zae_limiter.backends.dynamodb.bucket_codec import encode_bucket_item
from zae_limiter.backends.dynamodb.configs import are_neighbours
from zae_limiter.backends.dynamodb.wire.values import Item
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import BucketAddress, full_bucket, take_tokens
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.limit import LimitSet
from zae_limiter.flows.config.resolve import resolve
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
class ConfigRead:
    """What a process reads that knows nothing of a key: read units, and how many of them are
    those of the one record that all keys share."""

    rcu: int
    system_rcu: int


def config_reads() -> tuple[ConfigRead, ConfigRead]:
    """For the first key in a lifetime of the cache, and for any other."""
    store = _Counting()
    scope = Scope(store, VirtualIo(Events(), Random(0), 0), "n")
    for entity_id in ("first", "other"):
        run(resolve(scope, entity_id, _RESOURCE))
    first, other = store.reads
    return first, other


def config_rcu(slots: Sequence[ConfigSlot], entity_id: str | None) -> int:
    """One for each record, but one for all of a key's own, which a query finds together."""
    if entity_id is not None and are_neighbours(entity_id, slots):
        return 1
    return len(slots) + (entity_id is not None)


class _Counting(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[ConfigRead] = []
        self._read = self.configs.read
        self.configs.read = self._counted  # type: ignore[method-assign]

    async def _counted(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        self.reads.append(ConfigRead(config_rcu(slots, entity_id), SYSTEM_SLOT in slots))
        return await self._read(namespace_id, slots, entity_id)


def bucket_bytes() -> int:
    """A bucket of two limits in use, its index entries included, as AWS bills storage."""
    address = BucketAddress("a1b2c3d4e5f", "key-0123456789abcdef", _RESOURCE)
    bucket = full_bucket(LimitSet.of(_LIMITS), START_US // 1000, metered=True)
    io = VirtualIo(Events(), Random(0), 0)
    recent = tuple(io.operation_id() for _ in range(4))
    used = take_tokens(bucket, {"rpm": 1000, "tpm": 500_000, "wcu": 1000}, 1, recent)
    item = encode_bucket_item(address, used._replace(parent_id="org-0123456789abcdef"))
    entries = sum(item_bytes(_entry(item, index)) + _OVERHEAD_BYTES for index in _INDEXES)
    return item_bytes(item) + _OVERHEAD_BYTES + entries


def _entry(item: Item, index: str) -> Item:
    """All that an index of keys alone has of an item."""
    return {name: item[name] for name in ("PK", "SK", f"{index}PK", f"{index}SK")}
