"""Real processes on one bucket: whatever they do at the same time, it adds up."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.books import Account, Book, read_books
from tests.support.table_client import ENTITY, LIMITS, RESOURCE
from tests.support.table_crowd import SOAK_S, Crowd
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.core.limit import MILLI
from zae_limiter.core.shards import MAX_SHARDS, sums_to_one
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime.blocking import run
from zae_limiter.testing import assert_window_theorem

# Nothing to speak of comes back while a test runs.
STILL = [
    Limit("rpm", 1_000_003, 1, 30_000_000),
    Limit("tpm", 100_000_003, 1, 30_000_000),
]
# More comes back than a few processes can take, so that whoever takes also refills.
LIVELY = [Limit("rpm", 1_000_000, 100_000, 1), Limit("tpm", 1_000_000, 300_000, 1)]
# Enough for ten leases in a second, for which all come at the same moment.
SCARCE = [Limit("rpm", 10, 100, 1)]


@pytest.fixture
def limiter(crowd: Crowd) -> SyncRateLimiter:
    return SyncRateLimiter(crowd.repository)


def check_history(account: Account, crowd: Crowd, limits: list[Limit] = LIMITS) -> None:
    """The window theorem, for the highest limits that were ever in force."""
    events = [event for event in account.events if event.admitted or event.amount_milli < 0]
    assert_window_theorem({ENTITY: events}, limits, skew_ms=account.longest_ms)
    assert sums_to_one(bucket.shard_count for bucket in crowd.items().values())
    for limit in limits:
        assert crowd.held_milli(limit.name) <= limit.capacity * MILLI
        # From first to last all that happened is inside, so that no doubt has to be allowed for.
        net_milli = sum(e.amount_milli for e in events if e.limit_name == limit.name)
        refilled = (account.ended_ms - account.began_ms) * limit.refill_amount
        allowed_milli = limit.capacity * MILLI + refilled / limit.refill_period_seconds
        assert net_milli <= allowed_milli, f"{limit}: {net_milli} of {allowed_milli}"


def test_processes_that_do_everything_at_once_add_up(crowd: Crowd) -> None:
    crowd.repository.set_limits(ENTITY, LIMITS, RESOURCE)
    for _ in range(4):
        crowd.start(splits=50, changes=50)
    account = crowd.run(crowd.is_split, refused=20, refunded=5, corrected=10, limits_changed=3)
    assert account.open_steps == 0
    assert crowd.consumed() == account.charged
    check_history(account, crowd)


@pytest.mark.slow
def test_processes_that_want_the_same_tokens_at_the_same_moment_share_them(crowd: Crowd) -> None:
    crowd.repository.set_limits(ENTITY, SCARCE, RESOURCE)
    for _ in range(4):
        crowd.start(wanted={"rpm": 10}, keeps=True, punctual=True)
    account = crowd.run(admitted=30, refused=30)
    assert crowd.consumed() == account.charged
    check_history(account, crowd, SCARCE)


@pytest.mark.slow
def test_splitting_to_the_limit_under_load_makes_and_loses_nothing(crowd: Crowd) -> None:
    crowd.repository.set_limits(ENTITY, STILL, RESOURCE)
    for _ in range(4):
        crowd.start(splits=60, refunds=False)
    account = crowd.run(crowd.is_split, admitted=100, corrected=10)
    split_to(crowd, MAX_SHARDS)
    assert len(crowd.items()) == MAX_SHARDS
    assert crowd.consumed() == account.charged
    assert account.notes["refused"] == 0
    for limit in STILL:
        taken = account.charged[limit.name]
        assert crowd.held_milli(limit.name) == (limit.capacity - taken) * MILLI


def split_to(crowd: Crowd, count: int) -> None:
    """Split every item until there are so many."""
    scope = crowd.repository.scope
    while len(found := run(read_all(scope, crowd.home))) < count:
        for address, bucket in found.items():
            if bucket.shard_count < count:
                assert run(split_shard(scope, address, bucket))


@pytest.mark.slow
@pytest.mark.parametrize("limits", [STILL, LIVELY], ids=["still", "lively"])
def test_processes_that_nibble_do_not_keep_a_third_of_the_capacity_from_being_admitted(
    crowd: Crowd, limiter: SyncRateLimiter, limits: list[Limit]
) -> None:
    crowd.repository.set_limits(ENTITY, limits, RESOURCE)
    with limiter.acquire(ENTITY, RESOURCE, {"tpm": 1}):
        pass
    split_to(crowd, 8)
    for _ in range(4):
        crowd.start()
    crowd.open_gate()
    crowd.wait_for({"admitted": 40})
    third = limits[1].capacity * 3 // 10
    end = time.monotonic() + SOAK_S
    thirds = 0
    while thirds < 10 or time.monotonic() < end:
        with limiter.acquire(ENTITY, RESOURCE, {"tpm": third}) as lease:
            assert len(lease.entries) >= 3
            lease.release(tpm=third - 1)
        thirds += 1
    account = crowd.join()
    assert account.notes["refused"] == 0
    account.charged.update({"tpm": 1 + thirds, "acquires": 1 + thirds})
    assert crowd.consumed() == account.charged


@pytest.mark.slow
def test_processes_that_are_killed_leave_no_more_in_doubt_than_they_had_under_way(
    crowd: Crowd,
) -> None:
    crowd.repository.set_limits(ENTITY, LIMITS, RESOURCE)
    for _ in range(4):
        crowd.start(splits=20)
    crowd.open_gate()
    for number in range(2):
        crowd.wait_for({"admitted": 10}, [number])
        time.sleep(SOAK_S / 3)
        crowd.kill(number)
    crowd.wait_for({"refused": 10, "corrected": 10}, [2, 3])
    account = crowd.join()
    consumed = crowd.consumed()
    for name, charged in account.charged.items():
        low, high = charged + account.least[name], charged + account.most[name]
        assert low <= consumed[name] <= high, f"{name}: {consumed[name]} of {low} to {high}"
    # Each of the two had a step under way for each of its tasks at most.
    assert account.open_steps <= 3 + 1
    check_history(account, crowd)


def test_books_of_the_dead_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "0.book"
    book = Book(path)
    book.end(book.begin({"rpm": 2}, acquires=1, admitted=True))
    book.end(book.begin({"rpm": 5}), done=False)
    book.begin({"rpm": 3}, acquires=1)
    book.begin({"rpm": -1})
    path.write_text(path.read_text(encoding="utf-8") + '{"at": 1, "st', encoding="utf-8")
    account = read_books([path])
    assert account.charged == {"rpm": 2, "acquires": 1}
    assert (account.least["rpm"], account.most["rpm"], account.open_steps) == (-1, 3, 2)
