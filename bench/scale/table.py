"""A model of a DynamoDB table: calls take time, an item bears only so much, all is counted.

What writes do is what they always do: the buckets are those of the store in memory. A call that
the table is too busy for is sent again as the wire sends it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from zae_limiter.backends.dynamodb.wire.retry import Backoff, delays
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.changes import BucketChange
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.writes import Write
from zae_limiter.testing.history import Event

from .events import Events

T = TypeVar("T")
Units = Mapping[BucketAddress, int]

# What AWS lets one partition, and so one item, do in a second.
PARTITION_WCU_PER_S = 1000
PARTITION_RCU_PER_S = 3000
_BACKOFF = Backoff().patient
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a call takes: anything between the two, half of it before it takes effect."""

    least_us: int
    most_us: int

    def half_us(self, rng: Random) -> int:
        """One way."""
        return rng.randint(self.least_us, self.most_us) // 2


IN_REGION = Latency(3000, 7000)


class Allowance:
    """What each item bears: so many units a second, and those of one second at once."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._left: dict[BucketAddress, tuple[float, int]] = {}

    def spend(self, units: Units, now_us: int) -> bool:
        """Spend the units of every item, or none if one of them lacks some."""
        left = {address: self._left_of(address, now_us) - n for address, n in units.items()}
        if any(rest < 0 for rest in left.values()):
            return False
        self._left |= {address: (rest, now_us) for address, rest in left.items()}
        return True

    def _left_of(self, address: BucketAddress, now_us: int) -> float:
        left, at_us = self._left.get(address, (self._per_s, now_us))
        return min(self._per_s, left + (now_us - at_us) * self._per_s / _SECOND_US)


@dataclass(slots=True)
class Tally:
    """What was asked of the table. `refused`: writes whose condition failed, which AWS bills
    like the others. `throttled`: requests that an item could not bear. `spent`: write units by
    item, without indexes."""

    granted: int = 0
    refused: int = 0
    throttled: int = 0
    splits: int = 0
    wcu: int = 0
    rcu: int = 0
    spent: Counter[BucketAddress] = field(default_factory=Counter)


class Table:
    """What all processes share.

    `takings`: what buckets let out, and when. `oldest_ms`: how long before it took effect a
    write was planned at most. `stream`: the changes that nobody has read yet, if anybody will.
    """

    def __init__(self, events: Events, rng: Random, latency: Latency) -> None:
        self.events = events
        self.tally = Tally()
        self.takings: list[Event] = []
        self.oldest_ms = 0
        self.stream: list[BucketChange] | None = None
        self._rng = rng
        self._latency = latency
        self._writes = Allowance(PARTITION_WCU_PER_S)
        self._reads = Allowance(PARTITION_RCU_PER_S)

    async def write(self, units: Units, carry_out: Callable[[], Awaitable[T]]) -> T:
        """Make a call that writes these items. Several are a transaction, in two rounds."""
        return await self._call(self._writes, units, carry_out, rounds=min(2, len(units)))

    async def read(self, units: Units, carry_out: Callable[[], Awaitable[T]]) -> T:
        """Make a call that reads these items."""
        return await self._call(self._reads, units, carry_out, rounds=1)

    async def _call(
        self, items: Allowance, units: Units, carry_out: Callable[[], Awaitable[T]], rounds: int
    ) -> T:
        waits_s = delays(_BACKOFF, lambda: self._rng.getrandbits(32))
        while True:
            await self._travel(rounds)
            is_borne = items.spend(units, self.events.now_us)
            if is_borne:
                answer = await carry_out()
            await self._travel(rounds)
            if is_borne:
                return answer
            self.tally.throttled += 1
            wait_s = next(waits_s, None)
            if wait_s is None:
                raise StorageUnavailable("an item is written or read too often")
            await self.events.wait_us(round(wait_s * _SECOND_US))

    async def _travel(self, rounds: int) -> None:
        await self.events.wait_us(rounds * self._latency.half_us(self._rng))

    def tell(self, address: BucketAddress, before: Bucket | None, after: Bucket) -> None:
        """Put a change into the stream."""
        if self.stream is not None:
            number = f"{self.events.now_us:020}-{len(self.stream):09}"
            now_ms = self.events.now_us // 1_000_000 * 1000
            self.stream.append(BucketChange(address, number, now_ms, before, after, number))

    def note(self, write: Write, before: Bucket | None, after: Bucket) -> None:
        """Write down what an item let out."""
        now_ms = self.events.now_us // 1000
        self.oldest_ms = max(self.oldest_ms, now_ms - write.at_ms)
        for name, cell in after.cells.items():
            earlier_milli = 0 if before is None else before.cells[name].consumed_milli
            taken_milli = cell.consumed_milli - earlier_milli
            if taken_milli:
                self.takings.append(Event(now_ms, name, taken_milli, admitted=taken_milli > 0))
