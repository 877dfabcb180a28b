"""Receipts that are damaged, or whose namespace or entity has gone, and keys in wrong hands."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.support.drivers import World, limiter_on
from tests.support.receipts import FULL, WANTED, from_token, prepare, used
from zae_limiter import (
    IdempotencyKeyError,
    Lease,
    LeaseExpiredError,
    Limit,
    NamespaceStateError,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    StoredDataError,
    ValidationError,
)
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.exceptions import StorageUnavailable


@pytest.fixture
async def limiter(world: World) -> RateLimiter:
    return await prepare(world)


DAMAGES = ["", "[]", "{}", "null", '{"lease": 7}', "{", '"\\ud800"', "[" * 100_000]


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("content", DAMAGES, ids=[text[:12] for text in DAMAGES])
async def test_a_damaged_receipt_is_named_and_nothing_is_charged(
    world: World, limiter: RateLimiter, content: str
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    token = lease.token()
    with closing(sqlite3.connect(world.path)) as db, db:
        db.execute("UPDATE receipts SET content = ?", (content,))
    with pytest.raises(StoredDataError, match="receipt KEY#k"):
        await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    with pytest.raises(StoredDataError, match="receipt KEY#k"):
        await from_token(limiter, token)
    assert await used(world) == WANTED


async def test_a_token_of_a_purged_namespace_has_expired(world: World) -> None:
    await prepare(world)
    repository = await world.open("tenant") if world.is_shared else world.repository
    await repository.set_system_defaults((await world.repository.get_system_defaults())[0])
    limiter = limiter_on(repository)
    name, namespace_id = repository.namespace_name, repository.namespace_id
    lease = await limiter.reserve("key-2", "gpt-4", WANTED, lease_ttl=60, idempotency_key="k")
    token = lease.token()
    await repository.delete_namespace(name)
    await repository.purge_namespace(namespace_id)
    world.clock.advance(61)
    with pytest.raises((NamespaceStateError, LeaseExpiredError)):
        await from_token(limiter, token)
    with pytest.raises(LeaseExpiredError):
        await lease.commit()
    with pytest.raises(NamespaceStateError):
        await limiter.reserve("key-2", "gpt-4", WANTED, idempotency_key="k")


async def test_a_lease_whose_bucket_was_deleted_is_committed_with_its_debt(
    world: World, limiter: RateLimiter
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", WANTED, lease_ttl=60)
    await limiter.delete_entity("key-1")
    await lease.commit(tpm=700)
    states = await limiter.repository.get_buckets("org", "gpt-4")
    left = {state.limit_name: state.tokens_milli // 1000 for state in states}
    assert left["tpm"] == 300


async def test_keys_of_two_namespaces_do_not_meet(world: World, limiter: RateLimiter) -> None:
    other = await world.open("elsewhere")
    await other.set_system_defaults((await world.repository.get_system_defaults())[0])
    strange = limiter_on(other)
    for each in (limiter, strange):
        lease = await each.reserve("key-1", "gpt-4", {"tpm": 5}, idempotency_key="k")
        assert not lease.is_repeat
        await lease.commit()
    lease = await strange.reserve("key-1", "gpt-4", {"tpm": 5}, lease_ttl=60)
    if world.is_shared:
        with pytest.raises(ValidationError, match="another namespace"):
            await from_token(limiter, lease.token())
    await lease.commit()


async def test_the_message_about_a_reused_key_tells_nothing_of_the_first_request(
    limiter: RateLimiter,
) -> None:
    lease = await limiter.reserve("key-1", "gpt-4", WANTED, idempotency_key="k")
    with pytest.raises(IdempotencyKeyError) as error:
        await limiter.reserve("org", "gpt-4", {"rpm": 1}, idempotency_key="k")
    assert "key-1" not in str(error.value)
    await lease.release()


@pytest.mark.parametrize("store_kind", ["memory"], indirect=True)
async def test_receipts_in_memory_are_dropped_after_their_time(
    world: World, limiter: RateLimiter
) -> None:
    store = world.scope.store
    assert isinstance(store, MemoryStore)
    for _ in range(1500):
        lease = await limiter.reserve("key-1", "gpt-4", {"rpm": 1}, lease_ttl=1)
        await lease.release()
        world.clock.advance(1)
    assert len(store.receipts._tables.receipts) < 1100
    assert (await used(world)) == FULL


async def test_a_further_charge_whose_answer_is_lost_for_long_is_not_made_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with await Repository.open(url="memory://") as repository:
        limiter, receipts = RateLimiter(repository), repository.scope.store.receipts
        await repository.set_system_defaults([Limit.per_day("tpm", 1000)])
        lease = await limiter.reserve("key", "gpt-4", {"tpm": 1}, lease_ttl=60)
        other = await Lease.from_token(limiter, lease.token())
        swap = receipts.swap

        async def lose_answer(*asked: Any) -> Any:
            monkeypatch.setattr(receipts, "swap", swap)
            await swap(*asked)
            for _ in range(9):
                await other.consume(tpm=1)
            raise StorageUnavailable("the answer was lost", ambiguous=True)

        monkeypatch.setattr(receipts, "swap", lose_answer)
        with pytest.raises(RateLimiterUnavailable):
            await lease.consume(tpm=100)
        assert lease.id == other.id
        assert (await limiter.available("key", "gpt-4"))["tpm"] == 890
        await lease.release()
        assert (await limiter.available("key", "gpt-4"))["tpm"] == 1000
        with pytest.raises(LeaseExpiredError):
            await other.release()
