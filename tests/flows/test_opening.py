from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.drivers import (
    Driver,
    World,
    connect_repository,
    limiter_on,
    open_repository,
    take,
)
from zae_limiter import (
    InfrastructureNotFoundError,
    Limit,
    NamespaceNotFoundError,
    RateLimiter,
    Repository,
    StoredDataError,
    ValidationError,
)

RPM = Limit.per_minute("rpm", 100)


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("zae-limiter")}


async def ended(threads: set[threading.Thread]) -> bool:
    """Whether these end soon; they are told to, not waited for."""
    for _ in range(2_000):
        if not any(thread.is_alive() for thread in threads):
            return True
        await asyncio.sleep(0.001)
    return False


async def test_open_creates_a_file_and_connect_never_does(driver: Driver, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    with pytest.raises(InfrastructureNotFoundError):
        await connect_repository(driver, url=url)
    assert os.listdir(tmp_path) == []
    async with await open_repository(driver, url=url) as opened:
        await take(limiter_on(opened, default_limits=[RPM]), rpm=1)
    async with await connect_repository(driver, url=url) as connected:
        assert connected.namespace_id == opened.namespace_id
        assert len(await connected.get_buckets("key-1")) == 1


async def test_connect_changes_nothing_and_leaves_nothing_behind(
    driver: Driver, tmp_path: Path
) -> None:
    world = World(driver, "sqlite", tmp_path)
    await world.open()
    await world.close()
    before, running = world.dump(), workers()
    with pytest.raises(NamespaceNotFoundError):
        await connect_repository(driver, "nowhere", url=world.url)
    assert world.dump() == before
    assert await ended(workers() - running)
    async with await connect_repository(driver, url=world.url):
        pass
    assert world.dump() == before
    assert await ended(workers() - running)


async def test_nothing_is_left_behind_when_opening_fails(driver: Driver, tmp_path: Path) -> None:
    running = workers()
    (tmp_path / "notes.txt").write_text("not a database" * 100)
    with pytest.raises(StoredDataError):
        await open_repository(driver, url=f"sqlite:///{tmp_path / 'notes.txt'}")
    with pytest.raises(InfrastructureNotFoundError):
        await open_repository(driver, url=f"sqlite:///{tmp_path / 'missing' / 'limits.db'}")
    assert await ended(workers() - running)
    assert (tmp_path / "notes.txt").read_text() == "not a database" * 100


async def test_nothing_is_left_behind_when_opening_is_cancelled(tmp_path: Path) -> None:
    running = workers()
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    async with await Repository.open(url=url):
        pass
    with closing(sqlite3.connect(tmp_path / "limits.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(Repository.open("new", url=url))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.01)
        other.execute("ROLLBACK")
        await asyncio.wait([task])
    assert task.cancelled()
    assert await ended(workers() - running)


async def test_the_environment_names_store_and_namespace(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{tmp_path / 'limits.db'}")
    monkeypatch.setenv("ZAEL_NAMESPACE", "team-a")
    async with await open_repository(driver) as repository:
        assert repository.namespace_name == "team-a"
        assert (tmp_path / "limits.db").exists()
    async with await open_repository(driver, "team-b", url="memory://") as repository:
        assert (repository.namespace_name, repository.stack_name) == ("team-b", "memory://")


BAD_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("url", {"url": "limits.db"}),
    ("url", {"url": "sqlite://"}),
    ("url", {"url": "sqlite:///:memory:"}),
    ("url", {"url": "memory://somewhere"}),
    ("url", {"url": "redis://localhost"}),
    ("url", {"url": "sqlite:///x.db?mode=ro"}),
    ("url", {"url": 5}),
    ("namespace", {"url": "memory://", "namespace": "a b"}),
    ("namespace", {"url": "memory://", "namespace": "_"}),
    ("namespace", {"url": "memory://", "namespace": 5}),
    ("clock", {"url": "memory://", "clock": 5}),
    ("clock", {"url": "sqlite:///a.db", "clock": "noon"}),
    ("transport", {"url": "memory://", "transport": "carrier pigeon"}),
    ("transport", {"url": "sqlite:///a.db", "transport": 5}),
    ("config_cache_ttl", {"url": "memory://", "config_cache_ttl": -1}),
    ("config_cache_ttl", {"url": "memory://", "config_cache_ttl": True}),
    ("config_cache_ttl", {"url": "memory://", "config_cache_ttl": float("nan")}),
    ("config_cache_ttl", {"url": "memory://", "config_cache_ttl": "60"}),
    ("bucket_ttl_multiplier", {"url": "memory://", "bucket_ttl_multiplier": "7"}),
    ("bucket_ttl_multiplier", {"url": "memory://", "bucket_ttl_multiplier": 1.5}),
    ("bucket_ttl_multiplier", {"url": "memory://", "bucket_ttl_multiplier": True}),
]


@pytest.mark.parametrize(("field", "options"), BAD_OPTIONS, ids=lambda part: str(part)[:40])
@pytest.mark.parametrize("opening", [open_repository, connect_repository])
async def test_bad_options_are_refused_by_name(
    driver: Driver, opening: Callable[..., Any], field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError) as refused:
        await opening(driver, **options)
    assert refused.value.field == field


async def test_closing_a_repository_twice_does_nothing(driver: Driver, tmp_path: Path) -> None:
    repository = await open_repository(driver, url=f"sqlite:///{tmp_path / 'limits.db'}")
    limiter = limiter_on(repository, default_limits=[RPM])
    async with limiter:
        await take(limiter, rpm=1)
    await limiter.close()
    await repository.close()
    with pytest.raises(RuntimeError, match="closed"):
        await take(limiter, rpm=1)


async def test_a_block_s_error_is_raised_though_the_repository_is_closed_in_it(
    tmp_path: Path,
) -> None:
    """A repository that is closed inside a block cannot give back what the block took."""
    repository = await Repository.open(url=f"sqlite:///{tmp_path / 'limits.db'}")
    limiter = RateLimiter(repository, default_limits=[RPM])

    async def work() -> None:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            await repository.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()


async def test_buckets_live_as_long_as_the_multiplier_says(driver: Driver) -> None:
    for multiplier, lives_s in ((7, 420), (2, 120), (0, None)):
        world = World(driver, "memory", Path())
        repository = await world.open(bucket_ttl_multiplier=multiplier)
        await take(world.limiter(default_limits=[RPM]), rpm=1)
        found = await world.scope.store.buckets.of_entity(repository.namespace_id, "key-1")
        (bucket,) = found.values()
        now_s = world.clock.now_ms() // 1000
        assert bucket.expires_at_s == (None if lives_s is None else now_s + lives_s)
