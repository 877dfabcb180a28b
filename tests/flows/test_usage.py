from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.support.drivers import ADMIN_DRIVERS, EMBEDDED, Driver, StoreKind, World, take
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, UsageSnapshot
from zae_limiter.testing import ManualClock

LIMITS = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]
HOUR_S = 3600

pytestmark = pytest.mark.parametrize("store_kind", EMBEDDED, indirect=True)


@pytest.fixture
def driver(store_kind: StoreKind) -> Driver:
    return ADMIN_DRIVERS[store_kind]


@pytest.fixture(autouse=True)
async def _limits(repository: Repository) -> None:
    await repository.set_system_defaults(LIMITS)


async def windows(limiter: RateLimiter, window_type: str) -> list[tuple[str, dict[str, int], int]]:
    found, _ = await limiter.get_usage_snapshots("key-1", "gpt-4", window_type)
    return [(shot.window_start, shot.counters, shot.total_events) for shot in found]


async def test_usage_is_counted_by_hour_day_and_month(
    limiter: RateLimiter, clock: ManualClock
) -> None:
    clock.set(int(datetime(2024, 1, 31, 22, 59, 59, tzinfo=UTC).timestamp() * 1000))
    await take(limiter, rpm=1, tpm=10)
    clock.advance(1)
    await take(limiter, rpm=2)
    clock.advance(HOUR_S)
    await take(limiter, rpm=4)
    assert await windows(limiter, "hourly") == [
        ("2024-02-01T00:00:00Z", {"rpm": 4}, 1),
        ("2024-01-31T23:00:00Z", {"rpm": 2}, 1),
        ("2024-01-31T22:00:00Z", {"rpm": 1, "tpm": 10}, 1),
    ]
    assert await windows(limiter, "daily") == [
        ("2024-02-01T00:00:00Z", {"rpm": 4}, 1),
        ("2024-01-31T00:00:00Z", {"rpm": 3, "tpm": 10}, 2),
    ]
    assert await windows(limiter, "monthly") == [
        ("2024-02-01T00:00:00Z", {"rpm": 4}, 1),
        ("2024-01-01T00:00:00Z", {"rpm": 3, "tpm": 10}, 2),
    ]
    found, _ = await limiter.get_usage_snapshots("key-1", window_type="monthly")
    assert found[1] == UsageSnapshot(
        "key-1",
        "gpt-4",
        "2024-01-01T00:00:00Z",
        "2024-01-31T23:59:59Z",
        "monthly",
        {"rpm": 3, "tpm": 10},
        2,
    )


async def test_usage_counts_corrections_and_leaves_refunds_out(limiter: RateLimiter) -> None:
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}) as lease:
        await lease.consume(tpm=50)
        await lease.adjust(tpm=-30)
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}):
            raise ZeroDivisionError
    with pytest.raises(RateLimitExceeded):
        await take(limiter, rpm=101)
    assert await windows(limiter, "hourly") == [("2024-01-01T00:00:00Z", {"rpm": 1, "tpm": 120}, 1)]


async def test_a_refused_cascade_uses_nothing_at_any_level(
    limiter: RateLimiter, repository: Repository
) -> None:
    await repository.create_entity("key-1", parent_id="org", cascade=True)
    await take(limiter, "key-1", rpm=1)
    await take(limiter, "org", rpm=99)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, "key-1", rpm=1)
    for entity_id, used, events in (("key-1", 1, 1), ("org", 100, 2)):
        (found,), _ = await limiter.get_usage_snapshots(entity_id, window_type="hourly")
        assert (found.counters, found.total_events) == ({"rpm": used}, events)


async def test_usage_is_found_by_entity_and_by_resource(limiter: RateLimiter) -> None:
    await take(limiter, "a", "gpt-4", rpm=1)
    await take(limiter, "b", "gpt-4", rpm=2)
    await take(limiter, "a", "gpt-3", rpm=4)
    found, _ = await limiter.get_usage_snapshots(resource="gpt-4", window_type="daily")
    assert {shot.entity_id: shot.counters["rpm"] for shot in found} == {"a": 1, "b": 2}
    found, _ = await limiter.get_usage_snapshots("a", window_type="daily")
    assert {shot.resource: shot.counters["rpm"] for shot in found} == {"gpt-4": 1, "gpt-3": 4}


async def test_usage_between_two_times_includes_both(
    limiter: RateLimiter, repository: Repository, clock: ManualClock
) -> None:
    for _ in range(4):
        await take(limiter, rpm=1)
        clock.advance(HOUR_S)
    start, end = datetime(2024, 1, 1, 1), datetime(2024, 1, 1, 2, tzinfo=UTC)
    found, _ = await limiter.get_usage_snapshots("key-1", None, "hourly", start, end)
    wanted = ["2024-01-01T02:00:00Z", "2024-01-01T01:00:00Z"]
    assert [shot.window_start for shot in found] == wanted
    found, _ = await repository.get_usage_snapshots(
        "key-1", None, "hourly", "2024-01-01T01:00:00Z", "2024-01-01T03:00:00+01:00"
    )
    assert [shot.window_start for shot in found] == wanted
    berlin = timezone(timedelta(hours=1))
    summary = await limiter.get_usage_summary(
        "key-1", None, "hourly", datetime(2024, 1, 1, 2, tzinfo=berlin), None
    )
    assert summary.snapshot_count == 3


async def test_usage_is_read_in_pages(limiter: RateLimiter, clock: ManualClock) -> None:
    for _ in range(7):
        await take(limiter, rpm=1)
        clock.advance(HOUR_S)
    everything, after = await limiter.get_usage_snapshots("key-1")
    assert after is None
    assert len(everything) == 9
    found: list[UsageSnapshot] = []
    key = None
    while True:
        page, key = await limiter.get_usage_snapshots("key-1", limit=4, next_key=key)
        assert page
        assert not any(snapshot in found for snapshot in page)
        found += page
        if key is None:
            break
    assert found == everything


async def test_a_usage_summary_adds_up_its_windows(
    limiter: RateLimiter, clock: ManualClock
) -> None:
    await take(limiter, rpm=10, tpm=100)
    clock.advance(HOUR_S)
    await take(limiter, rpm=20)
    summary = await limiter.get_usage_summary("key-1", window_type="hourly")
    assert summary.snapshot_count == 2
    assert summary.total == {"rpm": 30, "tpm": 100}
    assert summary.average == {"rpm": 15.0, "tpm": 100.0}
    assert summary.min_window_start == "2024-01-01T00:00:00Z"
    assert summary.max_window_start == "2024-01-01T01:00:00Z"
    nothing = await limiter.get_usage_summary("nobody")
    assert (nothing.snapshot_count, nothing.total, nothing.min_window_start) == (0, {}, None)


async def test_usage_stays_after_its_bucket_has_expired(world: World) -> None:
    """Buckets without limits of their own expire; their usage stays."""
    limiter = world.limiter()
    await take(limiter, rpm=5)
    world.clock.advance(30 * 86_400)
    for number in range(1_100):
        await take(limiter, f"other-{number}", rpm=1)
    assert await world.repository.get_buckets("key-1") == []
    assert await windows(limiter, "monthly") == [("2024-01-01T00:00:00Z", {"rpm": 5}, 1)]


async def test_a_time_bound_compares_with_the_start_of_a_window_to_the_fraction(
    limiter: RateLimiter, clock: ManualClock
) -> None:
    clock.set(int(datetime(2024, 5, 1, 10, tzinfo=UTC).timestamp() * 1000))
    await take(limiter, rpm=1)
    for start_time, is_found in (
        ("2024-05-01T10:00:00", True),
        ("2024-05-01T10:00:00.000001", False),
        ("0300-01-01", True),
    ):
        found, _ = await limiter.get_usage_snapshots(
            "key-1", window_type="hourly", start_time=start_time
        )
        assert bool(found) is is_found, start_time
