"""A world with readers of the stream: clients at work, and usage counted beside them.

Readers take batches from any place that a stream may deliver from, handle some of them twice, in
pieces or two at a time, lose calls, and are killed. What they have counted in the end is compared
with the writes that took effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.changes import BucketChange
from zae_limiter.core.usage import UsageCounts
from zae_limiter.core.windows import WINDOW_TYPES, window_start
from zae_limiter.flows.scope import Scope
from zae_limiter.flows.stream.aggregate import StreamSettings, aggregate
from zae_limiter.ports.repository_protocol import StreamedUsage
from zae_limiter.runtime.blocking import BlockingIo, run
from zae_limiter.runtime.simulated import Client
from zae_limiter.runtime.simulated_faults import DistantStore

from .properties import acquires, deltas_milli
from .stream_shards import Positions, StreamShard, draw_shards
from .world import NAMESPACE, World

_ROUNDS = 60
Windows = dict[tuple[object, ...], UsageCounts]


class StreamWorld(World):
    """Everything in one run, and the readers of its stream.

    `stretch`: how many times faster the stream's clock goes, so that short runs cross days and
    months.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.start_ms = self.simulation.now_ms
        rng = self.rng
        self.stretch = rng.choice((1, 1, 600, 60_000))
        self.settings = StreamSettings(refills=rng.random() < 0.4, splits=rng.random() < 0.7)
        self.positions = Positions(draw_shards(rng), self.truth.stream)
        self.counted = MemoryStore()
        self.readers = rng.randint(1, 3)
        self.kills = rng.randint(0, 3)
        self.seen: Counter[str] = Counter()

    def run(self) -> StreamWorld:
        super().run()
        self._drain()
        return self

    def at_ms(self, change: BucketChange) -> int:
        """The time at which the stream says that a change was written."""
        return self.start_ms + self.stretch * (change.at_ms - self.start_ms)

    def _unleash(self) -> None:
        super()._unleash()
        for _ in range(self.readers):
            self._start_reader()

    def _start_reader(self) -> None:
        reader = self.simulation.client(self.store, self.scenario.faults)
        self.simulation.spawn(reader, self._read_stream(reader))
        if self.kills:
            self.kills -= 1
            self.simulation.spawn(self.fate, self._kill(reader))

    async def _kill(self, reader: Client) -> None:
        await self.fate.io.sleep(self.rng.randint(0, 6000) / 1000)
        self.simulation.crash(reader)
        self._start_reader()

    async def _read_stream(self, reader: Client) -> None:
        usage: StreamedUsage = DistantStore(self.counted, reader.line).usage  # type: ignore[assignment]
        scope = self._scope(reader.io, reader.store)
        for _ in range(_ROUNDS):
            await reader.io.sleep(self.rng.randint(0, 300) / 1000)
            shard = self.rng.choice(self.positions.readable())
            await self._read_some(scope, usage, shard)

    async def _read_some(self, scope: Scope, usage: StreamedUsage, shard: StreamShard) -> None:
        done = self.positions.of(shard)
        first = max(0, done - self._some(4))
        batch = self._records(shard)[first : first + self.rng.randint(1, 12)]
        self.seen["redelivered"] += first < done and bool(batch)
        handled = await self._deliver(scope, usage, batch)
        self.positions.advance(shard, first + handled)

    def _some(self, most: int) -> int:
        return self.rng.randint(0, most) if self.rng.random() < 0.4 else 0

    def _records(self, shard: StreamShard) -> list[BucketChange]:
        found = self.positions.records(shard)
        return [change._replace(at_ms=self.at_ms(change)) for change in found]

    async def _deliver(
        self, scope: Scope, usage: StreamedUsage, batch: Sequence[BucketChange]
    ) -> int:
        """Return how many records from the start on need not be delivered again. A batch that
        failed may be cut in two, of which the second is delivered only after the first."""
        result = await aggregate(scope, usage, batch, self.settings)
        self.seen["splits"] += result.splits
        self.seen["refills"] += result.refills_written
        ids = [change.record_id for change in batch]
        handled = next((i for i, each in enumerate(ids) if each in result.failed), len(ids))
        if handled == len(ids):
            return handled
        self.seen["failed"] += 1
        if len(batch) < 2 or self.rng.random() < 0.5:
            return handled
        self.seen["bisected"] += 1
        half = len(batch) // 2
        first = await self._deliver(scope, usage, batch[:half])
        if first < half:
            return max(first, handled)
        return max(handled, half + await self._deliver(scope, usage, batch[half:]))

    def _drain(self) -> None:
        """Read what is left, and some of it again."""
        scope = Scope(self.store, BlockingIo(), NAMESPACE)
        settings = StreamSettings(splits=False)
        while self.positions.is_behind():
            for shard in self.positions.readable():
                records = self._records(shard)
                first = max(0, self.positions.of(shard) - self._some(9))
                run(aggregate(scope, self.counted.usage, records[first:], settings))
                self.positions.advance(shard, len(records))


def true_usage(world: StreamWorld) -> Windows:
    """What the writes that took effect mean to have consumed, by entity, window and start."""
    found: Windows = {}
    told = (change for change in world.truth.stream if change.after is not None)
    for applied, change in zip(world.truth.applied, told, strict=True):
        moved_milli = deltas_milli(applied.write).items()
        known_milli = {name: n for name, n in moved_milli if n and name in applied.after.cells}
        counts = UsageCounts(known_milli, acquires(applied.write))
        if counts:
            for window in WINDOW_TYPES:
                start = window_start(window, world.at_ms(change))
                key = (*applied.address[:3], window, start)
                found.setdefault(key, UsageCounts()).add(counts)
    return found


def counted_usage(world: StreamWorld) -> Windows:
    """What the readers have counted."""
    snapshots = world.counted.usage._tables.snapshots
    return {key: snapshot.counts for key, snapshot in snapshots.items()}


def check_stream(world: StreamWorld) -> None:
    """4.10: each snapshot has what was consumed in its window, and each admission once."""
    true, counted = true_usage(world), counted_usage(world)
    assert true.keys() == counted.keys(), f"windows {true.keys() ^ counted.keys()}"
    for key, wanted in true.items():
        found = counted[key]
        wanted_milli = {name: n for name, n in wanted.consumed_milli.items() if n}
        found_milli = {name: n for name, n in found.consumed_milli.items() if n}
        assert found_milli == wanted_milli, f"{key}: {found_milli}, not {wanted_milli}"
        assert found.events == wanted.events, f"{key}: {found.events}, not {wanted.events} events"
