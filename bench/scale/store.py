"""The store in memory, at the end of calls to a modelled table."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.hierarchy import ConfigSlot
from zae_limiter.core.writes import Create, Granted, Outcome, Write
from zae_limiter.ports.repository_protocol import Buckets, ConfigPage, Configs

from .records import config_rcu
from .table import Table

Addressed = tuple[BucketAddress, Write]

# A new bucket item is written to three indexes too, which no later write touches.
INDEX_WCU = 3
TRANSACTION_WCU = 2


class ModelStore(MemoryStore):
    """Buckets and their configuration in a modelled table; nothing else is asked for here."""

    buckets: Buckets  # type: ignore[assignment]
    configs: Configs  # type: ignore[assignment]

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.at_hand = self.buckets
        self.buckets = _ModelBuckets(table, self.at_hand)
        self.configs = _ModelConfigs(table, self.configs)


class _ModelBuckets:
    metered = True

    def __init__(self, table: Table, buckets: Buckets) -> None:
        self.of_entity = buckets.of_entity
        self.of_resource = buckets.of_resource
        self.of_resource_after = buckets.of_resource_after
        self.of_namespace_after = buckets.of_namespace_after
        self._table = table
        self._buckets = buckets

    async def write(self, address: BucketAddress, write: Write) -> Outcome:
        async def carry_out() -> list[Outcome]:
            return await self._carry_out([(address, write)], 1)

        return (await self._table.write({address: 1}, carry_out))[0]

    async def write_all(self, writes: Sequence[Addressed]) -> list[Outcome]:
        """A transaction, and a look at what it left: it answers with no images."""

        async def carry_out() -> list[Outcome]:
            return await self._carry_out(writes, TRANSACTION_WCU)

        addresses = [address for address, _ in writes]
        outcomes = await self._table.write(dict.fromkeys(addresses, TRANSACTION_WCU), carry_out)
        if not all(isinstance(outcome, Granted) for outcome in outcomes):
            return outcomes
        self._table.tally.splits += any(isinstance(write, Create) for _, write in writes)
        found = await self.read(addresses)
        return [Granted(found[address]) for address in addresses]

    async def fence(self, address: BucketAddress, operation: str) -> Bucket | None:
        async def carry_out() -> Bucket | None:
            self._table.tally.wcu += 1
            return await self._buckets.fence(address, operation)

        return await self._table.write({address: 1}, carry_out)

    async def read(self, addresses: Sequence[BucketAddress]) -> dict[BucketAddress, Bucket]:
        async def carry_out() -> dict[BucketAddress, Bucket]:
            self._table.tally.rcu += len(addresses)
            return await self._buckets.read(addresses)

        return await self._table.read(dict.fromkeys(addresses, 1), carry_out)

    async def _carry_out(self, writes: Sequence[Addressed], wcu: int) -> list[Outcome]:
        before = await self._buckets.read([address for address, _ in writes])
        outcomes = await self._buckets.write_all(writes)
        is_granted = all(isinstance(outcome, Granted) for outcome in outcomes)
        self._count(writes, wcu, is_granted)
        if is_granted:
            for (address, write), outcome in zip(writes, outcomes, strict=True):
                assert isinstance(outcome, Granted)
                self._table.note(write, before.get(address), outcome.bucket)
                self._table.tell(address, before.get(address), outcome.bucket)
        return outcomes

    def _count(self, writes: Sequence[Addressed], wcu: int, is_granted: bool) -> None:
        tally = self._table.tally
        tally.granted += is_granted
        tally.refused += not is_granted
        for address, write in writes:
            tally.spent[address] += wcu
            tally.wcu += wcu + INDEX_WCU * (is_granted and isinstance(write, Create))


class _ModelConfigs:
    def __init__(self, table: Table, configs: Configs) -> None:
        self.write = configs.write
        self.delete = configs.delete
        self.mark = configs.mark
        self.marks = configs.marks
        self.entities_with_records = configs.entities_with_records
        self.entities_with_limits = configs.entities_with_limits
        self.resources_with_entity_limits = configs.resources_with_entity_limits
        self.resources_with_defaults = configs.resources_with_defaults
        self._table = table
        self._configs = configs

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        async def carry_out() -> ConfigPage:
            self._table.tally.rcu += config_rcu(slots, entity_id)
            return await self._configs.read(namespace_id, slots, entity_id)

        return await self._table.read({}, carry_out)
