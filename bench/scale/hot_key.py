"""One hot key: many processes, one bucket, and acquires that arrive by chance at a given rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.flows.acquire.lease import end_lease, open_lease
from zae_limiter.flows.acquire.lease_record import LeaseTerms
from zae_limiter.flows.acquire.refusal_cache import RefusalCache
from zae_limiter.flows.acquire.request import make_request
from zae_limiter.flows.admin import limits as stored_limits
from zae_limiter.flows.scope import LocalState, Scope, Settings
from zae_limiter.flows.stream.aggregate import StreamSettings, aggregate
from zae_limiter.runtime.blocking import run
from zae_limiter.testing.history import Event

from .events import START_US, Events, VirtualIo
from .store import ModelStore
from .table import IN_REGION, Latency, Table, Tally

NAMESPACE, ENTITY, RESOURCE, LIMIT = "n", "hot", "model", "rpm"
_SECOND_US = 1_000_000
_POLL_US = 250_000
_LAG_US = 100_000
_TERMS = LeaseTerms()


@dataclass(frozen=True, slots=True)
class Level:
    """How the bucket stands while it is used.

    `use`: what is offered, as a part of what the limit lets through for ever. `burst_s`: what it
    lets through at once, in seconds of that.
    """

    name: str
    use: float
    burst_s: float

    def limit(self, acquires_per_s: int) -> Limit:
        """The limit that the load meets."""
        per_s = max(1, round(acquires_per_s / self.use))
        return Limit(LIMIT, max(1, round(per_s * self.burst_s)), per_s, 1)


FULL = Level("full", 0.5, 60)
FALLING = Level("falling", 2, 60)
SHORT = Level("short", 2, 0.2)


@dataclass(frozen=True, slots=True)
class Case:
    """A fleet, and what is asked of it. What happens in the first `warm_s` is not counted.
    `reader`: how the stream of changes is read, if it is."""

    level: Level
    acquires_per_s: int
    processes: int
    seconds: float
    warm_s: float
    coalesce: bool = True
    linger_ms: float = 0
    latency: Latency = IN_REGION
    reader: StreamSettings | None = None

    @property
    def limit(self) -> Limit:
        """The limit of the key."""
        return self.level.limit(self.acquires_per_s)


@dataclass(slots=True)
class Answers:
    """What came of acquires: how long the admitted ones took, and how many were not."""

    admitted_us: list[int] = field(default_factory=list)
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """What was seen after the warm-up, and what buckets let out from the begin. `oldest_ms`:
    how long before it took effect a write was planned at most."""

    case: Case
    answers: Answers
    tally: Tally
    shards: int
    takings: Sequence[Event]
    oldest_ms: int


class HotKey:
    """A run of a case. The same seed gives the same run."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self._answers = Answers()
        self._tally = Tally()
        self._rng = Random(seed)
        self._events = Events()
        self._table = Table(self._events, Random(self._rng.getrandbits(64)), case.latency)
        self._store = ModelStore(self._table)
        self._scopes = [self._scope(number) for number in range(case.processes)]

    def run(self) -> Run:
        """From an empty table to the last answer."""
        slot = stored_limits.resource_slot(RESOURCE)
        run(stored_limits.set_limits(self._scopes[0], slot, [self.case.limit]))
        self._events.spawn(self._arrivals())
        self._events.spawn(self._count())
        if self.case.reader is not None:
            self._table.stream = []
            self._events.spawn(self._read_stream(self.case.reader))
        self._events.run()
        shards = len(run(self._store.at_hand.of_entity(NAMESPACE, ENTITY)))
        table = self._table
        return Run(self.case, self._answers, self._tally, shards, table.takings, table.oldest_ms)

    def _scope(self, number: int) -> Scope:
        io = VirtualIo(self._events, Random(self._rng.getrandbits(64)), number)
        return Scope(
            self._store,
            io,
            NAMESPACE,
            Settings(self.case.coalesce, self.case.linger_ms / 1000),
            LocalState(refusals=RefusalCache()),
        )

    async def _arrivals(self) -> None:
        """As many as are offered on average, each at any process."""
        case, events, rng = self.case, self._events, self._rng
        end_us = START_US + round((case.warm_s + case.seconds) * _SECOND_US)
        at_us = float(START_US)
        while True:
            at_us += rng.expovariate(case.acquires_per_s / _SECOND_US)
            if at_us >= end_us:
                return
            await events.wait_us(max(0, round(at_us) - events.now_us))
            events.spawn(self._acquire(rng.choice(self._scopes)))

    async def _read_stream(self, settings: StreamSettings) -> None:
        """As Lambda reads a stream: all that has come since, four times a second, a while later."""
        scope, usage = self._scope(self.case.processes), MemoryStore().usage
        end_us = START_US + round((self.case.warm_s + self.case.seconds) * _SECOND_US)
        while self._events.now_us < end_us:
            await self._events.wait_us(_POLL_US)
            batch, self._table.stream = self._table.stream or [], []
            await self._events.wait_us(_LAG_US)
            await aggregate(scope, usage, batch, settings)

    async def _count(self) -> None:
        """Forget the warm-up, and do not go on while the last ones wait for their answers."""
        await self._events.wait_us(round(self.case.warm_s * _SECOND_US))
        self._answers = Answers()
        self._table.tally = Tally()
        await self._events.wait_us(round(self.case.seconds * _SECOND_US))
        self._tally, self._table.tally = self._table.tally, Tally()

    async def _acquire(self, scope: Scope) -> None:
        answers, began_us = self._answers, self._events.now_us
        request = make_request(ENTITY, RESOURCE, {LIMIT: 1})
        try:
            lease = await open_lease(scope, request, _TERMS)
            answers.admitted_us.append(self._events.now_us - began_us)
            await end_lease(lease, failed=False)
        except RateLimitExceeded:
            answers.refused += 1
        except RateLimiterUnavailable:
            answers.failed += 1
