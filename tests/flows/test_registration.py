"""A store or namespace that was deleted and made anew is noticed by clients that have it open."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.drivers import SHARED, StoreKind, World, balance, limiter_on, take
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, OnUnavailable, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.core.exceptions import NamespaceStateError

LIMITS = [Limit.per_day("rpd", 1000)]
TTL_S = 60


async def acquire(repository: Repository, amount: int = 1) -> None:
    """Acquire in a mode in which an outage would let the call through."""
    limiter = limiter_on(repository)
    await take(limiter, limits=LIMITS, on_unavailable=OnUnavailable.ALLOW, rpd=amount)


async def assert_gone(world: World, repository: Repository, state: str) -> None:
    """Every key of the repository is refused from now on, known and new ones."""
    world.clock.advance(TTL_S)
    limiter = limiter_on(repository)
    for entity_id in ("key-1", "key-2"):
        with pytest.raises(NamespaceStateError, match="open the repository again") as gone:
            await take(limiter, entity_id, limits=LIMITS, rpd=1)
        assert (gone.value.namespace_name, gone.value.state) == ("team-a", state)
    with pytest.raises(NamespaceStateError):
        await acquire(repository)
    with pytest.raises(NamespaceStateError):
        await limiter.available("key-1", "gpt-4", limits=LIMITS)


async def other_namespace(world: World) -> Repository:
    await world.repository.register_namespace("team-a")
    return await world.repository.namespace("team-a")


async def test_a_client_of_a_deleted_namespace_fails_until_it_is_recovered(world: World) -> None:
    there = await other_namespace(world)
    await acquire(there)
    await world.repository.delete_namespace("team-a")
    await assert_gone(world, there, "deleted")
    await world.repository.recover_namespace(there.namespace_id)
    await acquire(there)


def assert_only_events_are_left(world: World, there: Repository) -> None:
    """The registration, deletion and purge of a namespace are all that is known of it."""
    assert world.dump().count(there.namespace_id) == 3


async def test_a_client_of_a_purged_namespace_writes_nothing_more(world: World) -> None:
    there = await other_namespace(world)
    await acquire(there)
    await world.repository.delete_namespace("team-a")
    await world.repository.purge_namespace(there.namespace_id)
    await assert_gone(world, there, "deleted")
    assert_only_events_are_left(world, there)


@pytest.mark.parametrize("late_s", [0, TTL_S, 100 * 86400])
async def test_a_lease_that_ends_after_its_namespace_was_purged_writes_nothing(
    world: World, late_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    there = await other_namespace(world)
    limiter = limiter_on(there)
    leases = [await limiter.reserve("key-1", "gpt-4", {"rpd": 10}, LIMITS) for _ in range(2)]
    await world.repository.delete_namespace("team-a")
    await world.repository.purge_namespace(there.namespace_id)
    await world.repository.register_namespace("team-a")
    world.clock.advance(late_s)
    await leases[0].commit(rpd=50)
    await leases[1].release()
    assert_only_events_are_left(world, there)
    assert "+40 rpd" in caplog.text
    assert "registered anew" in caplog.text


async def purged(world: World) -> Repository:
    """A client that knows one key of a namespace, which has been purged within the TTL."""
    there = await other_namespace(world)
    await acquire(there)
    await world.repository.delete_namespace("team-a")
    await world.repository.purge_namespace(there.namespace_id)
    return there


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
async def test_a_client_makes_no_known_bucket_anew_in_a_purged_namespace(world: World) -> None:
    there = await purged(world)
    for entity_id in ("key-1", "key-2"):
        with pytest.raises(NamespaceStateError):
            await take(limiter_on(there), entity_id, limits=LIMITS, rpd=1)
    assert_only_events_are_left(world, there)


async def test_leases_of_a_purged_namespace_correct_nothing_after_the_ttl(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    there = await purged(world)
    limiter = limiter_on(there)
    # Within the TTL, a key that was never seen is still served.
    leases = [await limiter.reserve("key-2", "gpt-4", {"rpd": 10}, LIMITS) for _ in range(2)]
    world.clock.advance(TTL_S)
    before = world.dump()
    await leases[0].commit(rpd=50)
    await leases[1].release()
    assert world.dump() == before
    assert "+40 rpd" in caplog.text
    assert "-10 rpd" in caplog.text


async def test_leases_of_a_deleted_namespace_are_corrected_for_its_recovery(world: World) -> None:
    there = await other_namespace(world)
    limiter = limiter_on(there)
    lease = await limiter.reserve("key-1", "gpt-4", {"rpd": 10}, LIMITS)
    await world.repository.delete_namespace("team-a")
    world.clock.advance(TTL_S)
    await lease.commit(rpd=50)
    await world.repository.recover_namespace(there.namespace_id)
    assert await balance(there, "key-1") == {"rpd": 950_000}


async def test_a_client_of_a_namespace_that_was_registered_anew_fails(world: World) -> None:
    there = await other_namespace(world)
    await acquire(there, 1000)
    await world.repository.delete_namespace("team-a")
    again = await other_namespace(world)
    await acquire(again, 1000)
    await assert_gone(world, there, "re-registered")
    assert again.namespace_id != there.namespace_id


async def make_store_anew(world: World) -> None:
    if isinstance(world.place, OwnTable):
        await world.repository.delete_table()
    else:
        for file in world.path.parent.glob("limits.db*"):
            file.unlink()


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
async def test_clients_of_a_store_that_was_made_anew_fail(world: World) -> None:
    old = await world.open("team-a")
    await acquire(old, 1000)
    await make_store_anew(world)
    new = await world.open("team-a")
    await acquire(new, 1000)
    await assert_gone(world, old, "re-registered")
    assert old.namespace_id not in world.dump()


async def test_the_registration_is_read_once_in_a_ttl_by_all_tasks(world: World) -> None:
    there = await other_namespace(world)
    reads = count_reads(there)
    for _ in range(3):
        await asyncio.gather(*(take(limiter_on(there), limits=LIMITS, rpd=1) for _ in range(4)))
    assert reads == []
    world.clock.advance(TTL_S)
    await asyncio.gather(
        *(take(limiter_on(there), f"key-{n}", limits=LIMITS, rpd=1) for n in range(4))
    )
    assert reads == ["team-a"]


def count_reads(repository: Repository) -> list[str]:
    """Return a list to which each read of a registration adds the name."""
    inner: Any = repository.scope.store.namespaces
    reads, read = [], inner.read

    async def counted(name: str) -> Any:
        reads.append(name)
        return await read(name)

    inner.read = counted
    return reads


# Takes one token at a time until it fails, and tells how many and why.
OLD_CLIENT = """
    import sys, time
    from zae_limiter import Limit, OnUnavailable, SyncRateLimiter, SyncRepository
    from zae_limiter.core.exceptions import NamespaceStateError, RateLimiterUnavailable

    limits = [Limit.per_day("rpd", 1_000_000)]
    taken, until = 0, time.monotonic() + 40
    with SyncRepository.open(url=sys.argv[1], config_cache_ttl=0.5) as repository:
        limiter = SyncRateLimiter(repository)
        while time.monotonic() < until:
            try:
                with limiter.acquire("key-1", "gpt-4", {"rpd": 1}, limits):
                    taken += 1
                    if taken == 1:
                        print("begun", flush=True)
            except RateLimiterUnavailable:
                time.sleep(0.01)
            except NamespaceStateError as error:
                print("gone", error.state, flush=True)
                break
"""


@pytest.mark.parametrize("store_kind", SHARED, indirect=True)
def test_another_process_notices_that_its_store_was_made_anew(
    store_kind: StoreKind, place: Path | OwnTable
) -> None:
    url = World("blocking", store_kind, place).url
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(OLD_CLIENT), url]
    with (
        SyncRepository.open(url=url) as first,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as old,
    ):
        assert old.stdout is not None
        assert old.stdout.readline() == "begun\n"
        if isinstance(place, OwnTable):
            first.delete_table()
        else:
            # With its helpers: SQLite would take an old log for that of the new file.
            for file in place.glob("limits.db*"):
                file.unlink()
        with SyncRepository.open(url=url) as new:
            # It looks when its bucket has gone, which may be before the new store is there.
            assert old.stdout.readline() in ("gone re-registered\n", "gone deleted\n")
            assert old.wait() == 0
            whole = Limit.per_day("rpd", 1_000_000)
            with SyncRateLimiter(new).acquire("key-1", "gpt-4", {"rpd": 1_000_000}, [whole]):
                pass
