"""Usage in memory is read off the counters of buckets, whatever becomes of them."""

from __future__ import annotations

import pytest

from tests.support.sqlite import EVENT
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.limit import MILLI, Limit, LimitSet
from zae_limiter.core.planner import Intent, plan, plan_create
from zae_limiter.core.windows import HOUR_MS
from zae_limiter.core.writes import Adjust, Write
from zae_limiter.ports.repository_protocol import UsageQuery
from zae_limiter.runtime.blocking import run

# The start of an hour.
T0_MS = 1_699_999_200_000

HERE = BucketAddress("ns", "key-1", "gpt-4")
RPM = Limit.per_second("rpm", 100)
TPM = Limit.per_second("tpm", 100)
BOTH = LimitSet.of([RPM, TPM])


class Meter:
    """A store, one bucket of it, and what was used there by hour."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.operations = 0

    def take(
        self, hour: float, limits: LimitSet = BOTH, ttl_seconds: int | None = None, **takes: int
    ) -> None:
        at_ms = T0_MS + int(hour * HOUR_MS)
        takes_milli = {name: amount * MILLI for name, amount in takes.items()}
        intent = Intent(limits, takes_milli, 1, ttl_seconds, None, False)
        bucket = self.bucket()
        planned = (
            plan_create(intent, self.operation(), at_ms)
            if bucket is None
            else plan(intent, bucket, self.operation(), at_ms)
        )
        assert isinstance(planned, Write)
        run(self.store.buckets.write(HERE, planned))

    def adjust(self, hour: float, **deltas: int) -> None:
        deltas_milli = {name: delta * MILLI for name, delta in deltas.items()}
        at_ms = T0_MS + int(hour * HOUR_MS)
        run(self.store.buckets.write(HERE, Adjust(self.operation(), at_ms, deltas_milli, 0)))

    def operation(self) -> str:
        self.operations += 1
        return f"{T0_MS:011x}{self.operations}"

    def bucket(self) -> Bucket | None:
        return run(self.store.buckets.read([HERE])).get(HERE)

    def hours(self) -> list[tuple[dict[str, int], int]]:
        """What was used and how often, the oldest hour first."""
        query = UsageQuery("key-1", window_type="hourly")
        found, _ = run(self.store.usage.read("ns", query, 100, None))
        return [(snapshot.counters, snapshot.total_events) for snapshot in reversed(found)]


@pytest.fixture
def meter() -> Meter:
    return Meter()


def test_each_hour_counts_what_was_used_in_it(meter: Meter) -> None:
    for hour in (0, 0.5, 1, 3, 3.5):
        meter.take(hour, rpm=1, tpm=10)
    assert meter.hours() == [
        ({"rpm": 2, "tpm": 20}, 2),
        ({"rpm": 1, "tpm": 10}, 1),
        ({"rpm": 2, "tpm": 20}, 2),
    ]


def test_a_write_of_an_hour_that_was_over_counts_there(meter: Meter) -> None:
    for hour, amount in ((0, 1), (1, 2), (0.9, 4), (1.1, 8), (0.95, 16)):
        meter.take(hour, rpm=amount)
    assert meter.hours() == [({"rpm": 21}, 3), ({"rpm": 10}, 2)]


def test_a_refund_in_a_later_hour_lowers_that_hour(meter: Meter) -> None:
    meter.take(0, rpm=5, tpm=5)
    meter.adjust(1, rpm=-3)
    assert meter.hours() == [({"rpm": 5, "tpm": 5}, 1), ({"rpm": -3}, 0)]


def test_a_limit_that_went_and_came_back_has_lost_no_usage(meter: Meter) -> None:
    meter.take(0, rpm=1, tpm=7)
    meter.take(0.1, LimitSet.of([RPM]), rpm=1)
    meter.take(0.2, LimitSet.of([RPM]), rpm=1)
    bucket = meter.bucket()
    assert bucket is not None
    assert "tpm" not in bucket.cells
    meter.take(0.3, rpm=1, tpm=7)
    assert meter.hours() == [({"rpm": 4, "tpm": 14}, 4)]


def test_a_bucket_that_expired_and_came_back_has_lost_no_usage(meter: Meter) -> None:
    meter.take(0, rpm=5, ttl_seconds=1)
    for number in range(1_100):
        create = plan_create(
            Intent(BOTH, {}, 1, None, None, False), meter.operation(), T0_MS + 60_000
        )
        assert isinstance(create, Write)
        run(meter.store.buckets.write(HERE._replace(entity_id=f"other-{number}"), create))
    assert meter.bucket() is None
    meter.take(0.5, rpm=5)
    assert meter.hours() == [({"rpm": 10}, 2)]


def test_deleting_an_entity_counts_the_hours_of_its_usage(meter: Meter) -> None:
    for hour in (0, 1, 2):
        meter.take(hour, rpm=1)
    bucket_and_hours = 1 + 3
    assert run(meter.store.entities.delete("ns", "key-1", EVENT)) == bucket_and_hours
    assert meter.hours() == []
    meter.take(2, rpm=1)
    assert meter.hours() == [({"rpm": 1}, 1)]
