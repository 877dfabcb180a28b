"""Real processes on one bucket: whatever they do at the same time, it adds up."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.core.limit import MILLI
from zae_limiter.core.shards import MAX_SHARDS, is_whole
from zae_limiter.flows.shards import read_all, split_shard
from zae_limiter.runtime.blocking import run
from zae_limiter.testing import assert_window_theorem

from .books import Account, Book, read_books
from .client import ENTITY, LIMITS, RESOURCE
from .crowd import Crowd

# `make soak` asks for more.
SECONDS = float(os.environ.get("ZAEL_SOAK_SECONDS", "4"))
# Nothing to speak of comes back while a test runs.
STILL = [
    Limit("rpm", 1_000_003, 1, 30_000_000),
    Limit("tpm", 100_000_003, 1, 30_000_000),
]


@pytest.fixture
def limiter(crowd: Crowd) -> SyncRateLimiter:
    return SyncRateLimiter(crowd.repository)


def check_history(account: Account, crowd: Crowd) -> None:
    """The window theorem, for the highest limits that were ever in force."""
    events = [event for event in account.events if event.admitted or event.amount_milli < 0]
    assert_window_theorem({ENTITY: events}, LIMITS, skew_ms=account.longest_ms)
    assert is_whole(bucket.shard_count for bucket in crowd.items().values())
    for limit in LIMITS:
        assert crowd.held_milli(limit.name) <= limit.capacity * MILLI


def test_processes_that_do_everything_at_once_add_up(crowd: Crowd) -> None:
    crowd.repository.set_limits(ENTITY, LIMITS, RESOURCE)
    for _ in range(4):
        crowd.start(SECONDS, splits=40, changes=20)
    account = crowd.join()
    assert account.open_steps == 0
    for told in ("refused", "refunded", "corrected", "split", "limits changed"):
        assert account.notes[told] > 0, f"nothing was {told}: {account.notes}"
    assert crowd.consumed() == account.charged
    check_history(account, crowd)


def test_splitting_to_the_limit_under_load_makes_and_loses_nothing(crowd: Crowd) -> None:
    crowd.repository.set_limits(ENTITY, STILL, RESOURCE)
    for _ in range(4):
        crowd.start(SECONDS, splits=60, refunds=False)
    account = crowd.join()
    assert account.notes["split"] > 0
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


def test_a_third_of_the_capacity_is_admitted_while_others_nibble(
    crowd: Crowd, limiter: SyncRateLimiter
) -> None:
    crowd.repository.set_limits(ENTITY, STILL, RESOURCE)
    with limiter.acquire(ENTITY, RESOURCE, {"tpm": 1}):
        pass
    split_to(crowd, 8)
    for _ in range(4):
        crowd.start(SECONDS)
    crowd.open_gate()
    third = STILL[1].capacity * 3 // 10
    for _ in range(3):
        with limiter.acquire(ENTITY, RESOURCE, {"tpm": third}) as lease:
            assert len(lease.entries) >= 3
    account = crowd.join()
    assert account.notes["refused"] == 0
    account.charged.update({"tpm": 1 + 3 * third, "acquires": 4})
    assert crowd.consumed() == account.charged


def test_a_process_that_is_killed_leaves_no_more_in_doubt_than_it_had_under_way(
    crowd: Crowd,
) -> None:
    crowd.repository.set_limits(ENTITY, LIMITS, RESOURCE)
    for number in range(4):
        crowd.start(SECONDS + (60 if number < 2 else 0), splits=20)
    crowd.open_gate()
    for number in range(2):
        time.sleep(SECONDS / 3)
        crowd.kill(number)
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
