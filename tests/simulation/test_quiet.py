"""With one client, no faults and a right clock, every answer is exact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

import pytest

from tests.support.partition import assert_partition
from zae_limiter import Entity, RateLimitExceeded
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress, at, covers, full_bucket, time_to_gain_ms
from zae_limiter.core.judge import judge_shards
from zae_limiter.core.limit import MILLI, Limit, LimitSet
from zae_limiter.core.shards import MAX_SHARDS
from zae_limiter.flows.acquire.lease import adjust, end_lease, open_lease
from zae_limiter.flows.acquire.lease_record import LeaseTerms
from zae_limiter.flows.acquire.refusal_cache import RefusalCache
from zae_limiter.flows.acquire.request import make_request
from zae_limiter.flows.admin import capacity, entities
from zae_limiter.flows.admin import limits as stored_limits
from zae_limiter.flows.config.cache import ConfigCache
from zae_limiter.flows.scope import LocalState, Scope, Settings
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime.blocking import run
from zae_limiter.testing.simulation import Simulation

from .scenario import NAMES, PARENTS, RESOURCE, chain, draw_limit

SEEDS = 240
CHUNK = 60
STEPS = 12


class Quiet:
    """A chain of one to three levels, each with limits of its own, some of them spread."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.simulation = Simulation(seed)
        self.store = MemoryStore()
        self.store.buckets.metered = self.rng.random() < 0.4
        self.client = self.simulation.client(self.store)
        self.entity_id = self.rng.choice(("alone", "child-1", "key-1"))
        self.limits = {entity_id: self._draw_limits() for entity_id in chain(self.entity_id)}
        self.scope = Scope(
            self.client.store,
            self.client.io,
            "n",
            # No upkeep: items that are merged pool their parts of a millitoken, and may have
            # enough a millisecond earlier than they were to have apart.
            local=LocalState(ConfigCache(10_000), refusals=RefusalCache(self.rng.choice((0, 1)))),
            settings=Settings(coalesces=self.rng.random() < 0.5),
        )
        self.speculative = self.rng.random() < 0.7
        self.refusals = 0
        self._prepare()

    def _draw_limits(self) -> list[Limit]:
        return [draw_limit(self.rng, name) for name in NAMES]

    def _prepare(self) -> None:
        setup = Scope(self.store, self.client.io, "n")
        for entity_id, limits in self.limits.items():
            parent_id = PARENTS[entity_id]
            entity = Entity(entity_id, parent_id=parent_id, cascade=parent_id is not None)
            run(entities.create_entity(setup, entity, None))
            slot = stored_limits.entity_slot(entity_id, RESOURCE)
            run(stored_limits.set_limits(setup, slot, limits))

    async def tape(self) -> None:
        for _ in range(STEPS):
            await self.client.io.sleep(self.rng.choice((0, 1, 40, 700, 3000)) / 1000)
            await self._maybe_split()
            amounts = {name: self.rng.randint(0, 5) for name in NAMES if self.rng.random() < 0.8}
            wait_ms = await self.take(amounts)
            if 0 < wait_ms < math.inf:
                await self._wait_it_out(amounts, wait_ms)

    async def _wait_it_out(self, amounts: dict[str, int], wait_ms: float) -> None:
        """One millisecond less than it was told to wait is too early, and then it is time."""
        await self.client.io.sleep((wait_ms - 1) / 1000)
        assert await self.take(amounts) == 1
        await self.client.io.sleep(0.001)
        assert await self.take(amounts) == 0

    async def take(self, amounts: dict[str, int]) -> float:
        """Acquire, compare the answer with what is known, and return how long to wait."""
        expected_ms = await self.expected_wait_ms(amounts)
        request = make_request(self.entity_id, RESOURCE, amounts, speculative=self.speculative)
        told_s = await capacity.time_until_available(self.scope, request)
        assert round_ms(told_s) == expected_ms
        if expected_ms:
            with pytest.raises(RateLimitExceeded) as refusal:
                await open_lease(self.scope, request, LeaseTerms())
            self.refusals += 1
            assert refusal.value.retryable == math.isfinite(expected_ms)
            assert round_ms(refusal.value.retry_after_seconds) == expected_ms
            return expected_ms
        lease = await open_lease(self.scope, request, LeaseTerms())
        if self.rng.random() < 0.3:
            name = self.rng.choice(NAMES)
            least = -min(2, lease.ledger.held(name))
            adjust(lease, {name: self.rng.randint(least, 4)})
        await end_lease(lease, failed=self.rng.random() < 0.2)
        return 0

    async def expected_wait_ms(self, amounts: dict[str, int]) -> float:
        """How long until every level has all of it, from what is stored."""
        now_ms, waits_ms = self.simulation.now_ms, [0.0]
        for entity_id, limits in self.limits.items():
            limit_set = LimitSet.of(limits)
            found = await self.store.buckets.of_entity("n", entity_id)
            in_force = assert_partition(found.values())
            shards = [at(item, limit_set, now_ms) for item in in_force]
            takes_milli = {name: amount * MILLI for name, amount in amounts.items()}
            whole = shards or [full_bucket(limit_set, now_ms)]
            waits_ms.append(judge_shards(whole, takes_milli).wait_ms)
        return max(waits_ms)

    async def _maybe_split(self) -> None:
        """All items of a bucket at once: whoever missed one would split them on its way."""
        if not self.store.buckets.metered or self.rng.random() < 0.8:
            return
        home = BucketAddress("n", self.rng.choice(list(self.limits)), RESOURCE)
        for address, item in (await read_all(self.scope, home)).items():
            if item.shard_count < MAX_SHARDS:
                await split_shard(self.scope, address, item)


def round_ms(seconds: float) -> float:
    return seconds if math.isinf(seconds) else round(seconds * 1000)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_request_that_fits_is_admitted_and_a_told_wait_is_exact(first: int) -> None:
    refusals = 0
    for seed in range(first, first + CHUNK):
        quiet = Quiet(seed)
        quiet.simulation.spawn(quiet.client, quiet.tape())
        quiet.simulation.run()
        refusals += quiet.refusals
    assert refusals > 2 * CHUNK


def longer_by_one(bucket: Bucket, name: str, gain_milli: int) -> int:
    return time_to_gain_ms(bucket, name, gain_milli) + 1


def keeps_one_back(bucket: Bucket, takes_milli: Mapping[str, int]) -> bool:
    return covers(bucket, {name: amount + 1 for name, amount in takes_milli.items() if amount})


@pytest.mark.parametrize(
    ("target", "mutant"),
    [
        ("zae_limiter.core.judge.time_to_gain_ms", longer_by_one),
        ("zae_limiter.core.planner.covers", keeps_one_back),
    ],
)
def test_the_simulation_detects_a_millisecond_or_a_millitoken_too_many(
    target: str, mutant: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, mutant)
    with pytest.raises((AssertionError, ValueError)):
        test_a_request_that_fits_is_admitted_and_a_told_wait_is_exact(0)
