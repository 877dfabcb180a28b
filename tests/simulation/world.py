"""A scenario in motion: clients at work, an operator, and what befalls them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Self, cast
from unittest.mock import patch

from zae_limiter import Entity, OnUnavailable, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core import bucket
from zae_limiter.core.apply import apply
from zae_limiter.core.rates import Rate
from zae_limiter.core.shards import MAX_SHARDS
from zae_limiter.flows.acquire.lease import adjust, consume, end_lease, open_lease
from zae_limiter.flows.acquire.lease_record import LeaseTerms
from zae_limiter.flows.acquire.refusal_cache import RefusalCache
from zae_limiter.flows.acquire.request import make_request
from zae_limiter.flows.admin import entities
from zae_limiter.flows.admin import limits as stored_limits
from zae_limiter.flows.config.cache import ConfigCache
from zae_limiter.flows.scope import LocalState, Scope, Settings
from zae_limiter.flows.shards import upkeep
from zae_limiter.flows.shards.items import split_shard, without_remnants
from zae_limiter.ports.io import Io
from zae_limiter.ports.repository_protocol import RepositoryProtocol
from zae_limiter.runtime.blocking import run
from zae_limiter.runtime.simulated import Client, Simulation
from zae_limiter.runtime.simulated_scheduler import Cancelled

from .scenario import (
    ANCESTORS,
    LEAVES,
    NAMES,
    PARENTS,
    RESOURCE,
    draw_limits,
    draw_parent_limits,
    draw_scenario,
)
from .truth import Apply, TrueStore
from .watch import Amounts, Ending, Story, Watch, WatchedBuckets, WatchedConfigs

NAMESPACE = "n"
HORIZON_MS = 4000
LONG_MS = 40_000
HOUR_MS, YEAR_MS = 3_600_000, 366 * 86_400_000
_UNSURE_MS = 4000
_WILD = 0.5


class BodyFailed(Exception):
    """What the body of a lease raises when it is to fail."""


class World:
    """Everything in one run."""

    def __init__(self, seed: int, apply: Apply = apply) -> None:
        rng = Random(seed)
        self.scenario = draw_scenario(rng)
        self.simulation = Simulation(rng.getrandbits(64), jump_ms=self.scenario.jump_ms)
        self.rng = self.simulation.rng
        self.store = TrueStore(self.simulation.scheduler, apply, metered=self.scenario.metered)
        self.truth = self.store.truth
        self.watch = Watch(self.simulation.scheduler)
        self.fate = self.simulation.client(self.store)
        self.clients = [self._client() for _ in range(self.scenario.clients)]

    def run(self) -> Self:
        """From the first entity to the last answer."""
        with _silence(), _few_writes_each():
            self._prepare()
            for client in self.clients:
                scope = self._watched_scope(client)
                for _ in range(self.scenario.workers):
                    self.simulation.spawn(client, self._work(client, scope))
            self._unleash()
            self.simulation.run()
        return self

    def _client(self) -> Client:
        skew_ms = self.scenario.skew_ms
        ahead_ms = self.rng.randint(-skew_ms, skew_ms)
        client = self.simulation.client(self.store, self.scenario.faults, ahead_ms=ahead_ms)
        # Clocks that are right may be two seconds off, either way.
        client.io.correct(0, unsure_ms=_UNSURE_MS)
        return client

    def _watched_scope(self, client: Client) -> Scope:
        roles = {
            "buckets": WatchedBuckets(client.store.buckets, self.watch),
            "configs": WatchedConfigs(client.store.configs, self.watch),
        }
        return self._scope(client.io, cast(RepositoryProtocol, SimpleNamespace(**roles)))

    def _scope(self, io: Io, store: RepositoryProtocol) -> Scope:
        return Scope(
            store,
            io,
            NAMESPACE,
            Settings(self.scenario.coalesces, self.scenario.linger_s),
            LocalState(
                ConfigCache(self.scenario.cache_ttl_s),
                refusals=RefusalCache(self.scenario.refusal_ttl_s),
            ),
        )

    def _prepare(self) -> None:
        scope = self._scope(self.fate.io, self.store)
        for entity_id, parent_id in PARENTS.items():
            entity = Entity(entity_id, parent_id=parent_id, cascade=parent_id is not None)
            run(entities.create_entity(scope, entity, None))
        slot = stored_limits.resource_slot(RESOURCE)
        run(stored_limits.set_limits(scope, slot, self.scenario.defaults))
        for entity_id, limits in self.scenario.limits.items():
            slot = stored_limits.entity_slot(entity_id, RESOURCE)
            run(stored_limits.set_limits(scope, slot, limits))

    async def _work(self, client: Client, scope: Scope) -> None:
        for _ in range(self.scenario.jobs):
            longest_ms = LONG_MS if self.rng.random() < 0.1 else 1500
            try:
                await client.io.sleep(self._some_ms(longest_ms) / 1000)
                await self._job(client, scope)
            except Cancelled:
                continue

    def _some_ms(self, most_ms: int) -> int:
        """Often nothing, so that much happens at once."""
        return self.rng.randint(0, most_ms) if self.rng.random() < 0.6 else 0

    async def _job(self, client: Client, scope: Scope) -> None:
        story = self._story(client)
        self.watch.stories.append(story)
        self.watch.calls(story, story.consume)
        try:
            await self._acquire(scope, story)
            story.ending = Ending.SETTLED
        except RateLimitExceeded:
            story.ending = Ending.REFUSED
        except RateLimiterUnavailable:
            story.ending = Ending.UNAVAILABLE if story.lease is None else Ending.UNSETTLED
        except BodyFailed:
            story.ending = Ending.FAILED
        except Cancelled:
            story.ending = Ending.FAILED
            raise
        finally:
            story.decided_ms = story.decided_ms or self.simulation.now_ms

    async def _acquire(self, scope: Scope, story: Story) -> None:
        request = make_request(
            story.entity_id,
            RESOURCE,
            story.consume,
            story.override,
            speculative=self.scenario.speculative,
        )
        mode = OnUnavailable.ALLOW if self.rng.random() < 0.2 else None
        terms = LeaseTerms(story.timeout, mode)
        story.lease = await open_lease(scope, request, terms)
        story.decided_ms = self.simulation.now_ms
        try:
            await self._body(scope, story)
        except BaseException:
            await end_lease(story.lease, failed=True)
            raise
        await end_lease(story.lease, failed=False)

    def _story(self, client: Client) -> Story:
        rng, scenario = self.rng, self.scenario
        consume = {name: rng.randint(0, 3) for name in NAMES if rng.random() < 0.8}
        overrides = scenario.overrides and rng.random() < 0.3
        return Story(
            client,
            rng.choice(scenario.entities),
            consume,
            list(draw_limits(rng)) if overrides else None,
            rng.randint(0, 3000) / 1000 if scenario.waits and rng.random() < 0.7 else None,
            self.simulation.now_ms,
        )

    async def _body(self, scope: Scope, story: Story) -> None:
        for _ in range(self.rng.randint(0, 3)):
            await scope.io.sleep(self._some_ms(800) / 1000)
            await self._act(story)

    async def _act(self, story: Story) -> None:
        roll = self.rng.random()
        if roll < 0.3:
            await self._consume_more(story, {self.rng.choice(NAMES): self.rng.randint(1, 2)})
        elif roll < 0.7:
            self._adjust(story)
        elif roll < 0.8:
            raise BodyFailed

    async def _consume_more(self, story: Story, amounts: Amounts) -> None:
        assert story.lease is not None
        self.watch.calls(story, amounts)
        try:
            await consume(story.lease, amounts)
        except (RateLimitExceeded, RateLimiterUnavailable):
            return

    def _adjust(self, story: Story) -> None:
        """Any charge more, but never more back than the acquire took."""
        assert story.lease is not None
        name = self.rng.choice(NAMES)
        least = -story.consume.get(name, 0) - min(0, story.corrected.get(name, 0))
        delta = self.rng.randint(least, -1) if least and self.rng.random() < 0.6 else 3
        story.asks({name: delta})
        story.corrected[name] = story.corrected.get(name, 0) + delta
        adjust(story.lease, {name: delta})

    def _unleash(self) -> None:
        scenario = self.scenario
        blows = [
            *[self._crash] * scenario.crashes,
            *[self._cancel] * scenario.cancellations,
            *[self._cut] * scenario.cuts,
            *[self._step_clock] * scenario.clock_steps,
            *[self._split] * scenario.splits,
            *[self._change_limits] * scenario.changes,
            *[self._expire] * scenario.expiries,
        ]
        for blow in blows:
            self.simulation.spawn(self.fate, self._strike(blow))

    async def _strike(self, blow: Callable[[], Awaitable[None]]) -> None:
        await self.fate.io.sleep(self.rng.randint(0, HORIZON_MS) / 1000)
        for _ in range(self.rng.randint(0, 30)):
            await self.fate.io.sleep(0)
        await blow()

    async def _crash(self) -> None:
        self.simulation.crash(self.rng.choice(self.clients))

    async def _cancel(self) -> None:
        scheduler = self.simulation.scheduler
        tasks = scheduler.tasks_of(self.rng.choice(self.clients).io.process)
        if tasks:
            scheduler.cancel(self.rng.choice(tasks).root)

    async def _cut(self) -> None:
        line = self.rng.choice(self.clients).line
        line.is_cut = True
        await self.fate.io.sleep(self.rng.randint(0, 1000) / 1000)
        line.is_cut = False

    async def _step_clock(self) -> None:
        io = self.rng.choice(self.clients).io
        io.ahead_ms = self.rng.randint(-2000, 2000)
        if self.scenario.has_wild_steps and self.rng.random() < _WILD:
            io.ahead_ms = self.rng.choice((-1, 1)) * self.rng.choice((HOUR_MS, YEAR_MS))

    async def _split(self) -> None:
        """As whoever watches the load of the items does ahead of need."""
        found = without_remnants(await self.store.buckets.of_resource(NAMESPACE, RESOURCE))
        if found:
            address = self.rng.choice(list(found))
            if found[address].shard_count < MAX_SHARDS:
                scope = self._scope(self.fate.io, self.store)
                await split_shard(scope, address, found[address])

    async def _expire(self) -> None:
        await self.fate.io.sleep(self.rng.randint(0, LONG_MS) / 1000)
        self.store.expire()

    async def _change_limits(self) -> None:
        scope, roll = self._scope(self.fate.io, self.store), self.rng.random()
        leaf = stored_limits.entity_slot(self.rng.choice(LEAVES), RESOURCE)
        parent = stored_limits.entity_slot(self.rng.choice(ANCESTORS), RESOURCE)
        if roll < 0.4:
            slot = stored_limits.resource_slot(RESOURCE)
            await stored_limits.set_limits(scope, slot, draw_limits(self.rng))
        elif roll < 0.6:
            await stored_limits.set_limits(scope, leaf, draw_limits(self.rng))
        elif roll < 0.7:
            await stored_limits.delete_config(scope, leaf)
        else:
            await stored_limits.set_limits(scope, parent, draw_parent_limits(self.rng))


@contextmanager
def _few_writes_each() -> Iterator[None]:
    """Items that are full of writes after a few, so that they are split in a short run, and merged
    a moment later."""
    few = bucket.Cell(12_000, Rate(12_000, 12_000, 1000))
    with patch.object(bucket, "WCU_CELL", few), patch.object(upkeep, "_MEASURED_FOR_MS", 500):
        yield


@contextmanager
def _silence() -> Iterator[None]:
    """Failing stores are what these runs are about: no log of them."""
    logger = logging.getLogger("zae_limiter")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
