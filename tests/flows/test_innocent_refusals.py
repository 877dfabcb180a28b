"""Requests that one level refuses are no reason to refuse somebody else at another level."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.attacks.effort import LONGEST_S, effort, note_tried
from tests.support.drivers import StoreKind
from tests.support.servers.tables import OwnTable
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

KEYS = 40
CALLS = effort(250, 2000)
RAID_CALLS = 250
ATTACKER = """
import sys, time
from zae_limiter import RateLimitExceeded, SyncRateLimiter, SyncRepository
url, keys, cache_ttl = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
limiter = SyncRateLimiter(SyncRepository.open(url=url, refusal_cache_ttl=cache_ttl))
print("ready", flush=True)
end, number = time.monotonic() + 120, 0
while time.monotonic() < end:
    number += 1
    try:
        with limiter.acquire(f"bad-{number % keys}", "api", {"rpd": 900}):
            print("admitted", flush=True)
    except RateLimitExceeded:
        pass
"""


def prepare(repository: SyncRepository, doubtful: str) -> None:
    """Four levels. Under `org`, which has 900 of 1,000, bad keys cannot pass: at their own level,
    or at the team above them. The good key has a team of its own."""
    repository.set_system_defaults([Limit.per_day("rpd", 10_000)])
    short = [f"bad-{number}" for number in range(KEYS)] if doubtful == "leaf" else ["bad-team"]
    limiter = SyncRateLimiter(repository)
    # Before they have parents, so that each of these charges one bucket.
    for entity_id, taken in [("org", 100), *((each, 200) for each in short)]:
        repository.set_limits(entity_id, [Limit.per_day("rpd", 1000)])
        with limiter.acquire(entity_id, "api", {"rpd": taken}):
            pass
    repository.create_entity("org")
    for team in ("bad-team", "good-team"):
        repository.create_entity(team, parent_id="org", cascade=True)
    repository.create_entity("bad-project", parent_id="bad-team", cascade=True)
    repository.create_entity("good", parent_id="good-team", cascade=True)
    for number in range(KEYS):
        repository.create_entity(f"bad-{number}", parent_id="bad-project", cascade=True)


@pytest.mark.slow
@pytest.mark.parametrize("doubtful", ["leaf", "middle"])
@pytest.mark.parametrize(("attackers", "cache_ttl"), [(1, 1.0), (4, 0.0)])
@pytest.mark.parametrize("store_kind", ["sqlite", "dynamodb"], indirect=True)
def test_requests_that_one_level_refuses_never_make_a_sibling_be_refused(
    store_kind: StoreKind, place: Path | OwnTable, attackers: int, cache_ttl: float, doubtful: str
) -> None:
    url = place.url if isinstance(place, OwnTable) else f"sqlite:///{place / 'limits.db'}"
    with SyncRepository.open(url=url, refusal_cache_ttl=cache_ttl) as repository:
        prepare(repository, doubtful)
        arguments = [sys.executable, "-c", ATTACKER, url, str(KEYS), str(cache_ttl)]
        processes = [
            subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(attackers)
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            time.sleep(0.2)
            limiter = SyncRateLimiter(repository)
            refused = calls = 0
            ends_s = time.monotonic() + LONGEST_S
            while calls < CALLS and time.monotonic() < ends_s:
                calls += 1
                try:
                    with limiter.acquire("good", "api", {"rpd": 1}) as lease:
                        lease.release(rpd=1)
                except RateLimitExceeded:
                    refused += 1
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    note_tried("innocent calls", calls)
    assert refused == 0


def monthly(name: str, capacity: int) -> Limit:
    month_s = 30 * 86400
    return Limit.custom(name, capacity=capacity, refill_amount=1, refill_period_seconds=month_s)


class Raid:
    """A raider whose image of its key always says that two `x` are there, and two others who take
    each as soon as it comes. What the raider asks for is all that the common parent has."""

    def __init__(self, url: str, calls: int) -> None:
        self.url = url
        self.calls_left = calls
        self.raids: list[tuple[float, float]] = []
        self.refused: list[tuple[float, float]] = []
        self.opened: list[Repository] = []

    async def limiter(self) -> RateLimiter:
        self.opened.append(await Repository.open(url=self.url))
        return RateLimiter(self.opened[-1])

    async def prepare(self) -> None:
        limiter = await self.limiter()
        await limiter.create_entity("org")
        for entity_id in ("bad", "good"):
            await limiter.create_entity(entity_id, parent_id="org", cascade=True)
        x = Limit.custom("x", capacity=2, refill_amount=30, refill_period_seconds=1)
        await limiter.set_limits("org", [monthly("t", 900)])
        await limiter.set_limits("bad", [x, monthly("t", 10**7)])
        await limiter.set_limits("good", [monthly("t", 10**7)])

    async def run(self) -> None:
        await self.prepare()
        await asyncio.gather(self.raid(), self.drain(), self.drain(), self.ask())
        for repository in self.opened:
            await repository.close()

    async def raid(self) -> None:
        limiter = await self.limiter()
        while self.calls_left:
            began = time.monotonic()
            try:
                lease = await limiter.reserve("bad", "api", {"x": 2, "t": 900})
                await lease.release()
                self.raids.append((began, time.monotonic()))
            except RateLimitExceeded:
                await asyncio.sleep(0.002)

    async def drain(self) -> None:
        limiter = await self.limiter()
        while self.calls_left:
            try:
                async with limiter.acquire("bad", "api", {"x": 1}):
                    pass
            except RateLimitExceeded:
                await asyncio.sleep(0.001)

    async def ask(self) -> None:
        limiter = await self.limiter()
        while self.calls_left:
            self.calls_left -= 1
            began = time.monotonic()
            try:
                lease = await limiter.reserve("good", "api", {"t": 1})
                await lease.release()
            except RateLimitExceeded:
                self.refused.append((began, time.monotonic()))
            await asyncio.sleep(0.003)

    def unexplained(self) -> int:
        """Refusals while no raid that came to pass held the parent, or for a second after one."""
        return sum(
            not any(began <= until and since <= ended + 1.05 for began, ended in self.raids)
            for since, until in self.refused
        )


@pytest.mark.slow
@pytest.mark.parametrize("store_kind", ["sqlite", "dynamodb"], indirect=True)
async def test_stale_images_of_a_key_never_make_its_sibling_be_refused(
    store_kind: StoreKind, place: Path | OwnTable
) -> None:
    url = place.url if isinstance(place, OwnTable) else f"sqlite:///{place / 'limits.db'}"
    raid = Raid(url, RAID_CALLS)
    await raid.run()
    assert raid.unexplained() == 0
