"""The SQLite store does what the memory store does, on any sequence of writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.sqlite import EVENT, T0_MS, opened
from zae_limiter.backends.memory import MemoryStore
from zae_limiter.backends.sqlite import SqliteStore
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.idempotency import operation_id
from zae_limiter.core.limit import MILLI, Limit, LimitSet
from zae_limiter.core.planner import Intent, plan, plan_create, plan_first, plan_restamp
from zae_limiter.core.writes import Adjust, Write
from zae_limiter.ports.repository_protocol import UsageQuery
from zae_limiter.runtime.blocking import run

HOUR_MS = 3_600_000
LIMIT_SETS = [
    LimitSet.of([Limit.per_minute("rpm", 10)]),
    LimitSet.of([Limit.per_minute("rpm", 7, burst=3), Limit.per_hour("tpm", 10_000)]),
    LimitSet.of([Limit.per_day("tpm", 500)]),
]
KEYS = [("a", "gpt-4", 0), ("a", "gpt-4", 1), ("a", "claude", 0), ("b", "gpt-4", 0)]


@dataclass(frozen=True)
class Step:
    """One write, as far as it can be said before the bucket is known."""

    kind: str
    key: tuple[str, str, int]
    at_ms: int
    limits: LimitSet
    amount: int
    ttl_seconds: int | None


STEPS = st.builds(
    Step,
    kind=st.sampled_from(
        [
            "acquire",
            "acquire",
            "speculate",
            "create",
            "adjust",
            "restamp",
            "again",
            "together",
            "mixed",
        ]
    ),
    key=st.sampled_from(KEYS),
    # Also backward, and often into another hour.
    at_ms=st.integers(0, 4 * HOUR_MS).map(lambda offset_ms: T0_MS + offset_ms),
    limits=st.sampled_from(LIMIT_SETS),
    amount=st.integers(-5, 12),
    ttl_seconds=st.sampled_from([None, 10**8, 10**9, 10**24]),
)


def acquire(after_ms: int, limits: LimitSet, amount: int) -> Step:
    return Step("acquire", KEYS[0], T0_MS + after_ms, limits, amount, None)


# The first limit is full again and forgotten when the second comes, and then comes back.
GONE_AND_BACK = [
    acquire(0, LIMIT_SETS[0], 1),
    acquire(6_000, LIMIT_SETS[2], 1),
    acquire(6_000, LIMIT_SETS[0], 0),
]


def write_for(step: Step, bucket: Bucket | None, operation: str) -> Write:
    """What the step means for a bucket that looks like this."""
    amount_milli = step.amount * MILLI
    takes_milli = {limit.name: max(0, amount_milli) for limit in step.limits.limits}
    intent = Intent(step.limits, takes_milli, 1, step.ttl_seconds, "parent", step.amount > 3)
    if step.kind == "adjust":
        return Adjust(operation, step.at_ms, {"rpm": amount_milli, "tpm": -amount_milli}, 0)
    if step.kind == "speculate":
        return plan_first(intent, bucket, operation, step.at_ms)
    if step.kind == "restamp" and bucket is not None:
        return plan_restamp(intent, bucket, operation, step.at_ms)
    planned = (
        plan_create(intent, operation, step.at_ms)
        if step.kind == "create" or bucket is None
        else plan(intent, bucket, operation, step.at_ms)
    )
    return planned if isinstance(planned, Write) else Adjust(operation, step.at_ms, takes_milli, 1)


def parts(step: Step) -> list[Step]:
    """The steps to be taken all or none."""
    if step.kind == "together":
        return [replace(step, key=key) for key in KEYS]
    if step.kind == "mixed":
        kinds = ("acquire", "adjust", "create", "speculate")
        return [replace(step, key=key, kind=kind) for key, kind in zip(KEYS, kinds, strict=True)]
    return [step]


class Pair:
    """Both stores, given the same writes."""

    def __init__(self, memory: MemoryStore, sqlite: SqliteStore, namespace_id: str) -> None:
        self.memory = memory
        self.sqlite = sqlite
        self.namespace_id = namespace_id
        self.operations = count()
        self.last: list[tuple[BucketAddress, Write]] = []

    def take(self, step: Step) -> None:
        if step.kind != "again":
            self.last = [self.written(each) for each in parts(step)]
        if len(self.last) > 1:
            expected = run(self.memory.buckets.write_all(self.last))
            assert run(self.sqlite.buckets.write_all(self.last)) == expected
            return
        for address, write in self.last:
            outcome = run(self.memory.buckets.write(address, write))
            assert run(self.sqlite.buckets.write(address, write)) == outcome

    def written(self, step: Step) -> tuple[BucketAddress, Write]:
        address = BucketAddress(self.namespace_id, *step.key)
        bucket = run(self.memory.buckets.read([address])).get(address)
        operation = operation_id(step.at_ms, str(next(self.operations)))
        return address, write_for(step, bucket, operation)


def assert_same_buckets(memory: MemoryStore, sqlite: SqliteStore, namespace_id: str) -> None:
    addresses = [BucketAddress(namespace_id, *key) for key in KEYS]
    expected = run(memory.buckets.read(addresses))
    found = run(sqlite.buckets.read(addresses))
    assert found == expected
    assert [list(bucket.cells) for bucket in found.values()] == [
        list(bucket.cells) for bucket in expected.values()
    ]
    for resource in ("gpt-4", "claude"):
        listed = run(sqlite.buckets.of_resource(namespace_id, resource))
        assert list(listed.items()) == list(
            run(memory.buckets.of_resource(namespace_id, resource)).items()
        )
    listed = run(sqlite.buckets.of_entity(namespace_id, "a"))
    assert list(listed.items()) == list(run(memory.buckets.of_entity(namespace_id, "a")).items())


QUERIES = [
    UsageQuery("a"),
    UsageQuery("a", "gpt-4", "hourly"),
    UsageQuery(resource="gpt-4"),
    UsageQuery("b", window_type="monthly"),
]


def assert_same_usage(memory: MemoryStore, sqlite: SqliteStore, namespace_id: str) -> None:
    for query in QUERIES:
        cursor: str | None = None
        for _ in range(100):
            expected = run(memory.usage.read(namespace_id, query, 3, cursor))
            assert run(sqlite.usage.read(namespace_id, query, 3, cursor)) == expected
            cursor = expected[1]
            if cursor is None:
                break


def test_writes_buckets_and_usage_are_the_same_as_in_memory(tmp_path: Path) -> None:
    namespaces = count()
    memory = MemoryStore()
    with opened(tmp_path / "limits.db") as sqlite:

        @settings(max_examples=60, deadline=None)
        @given(st.lists(STEPS, max_size=25))
        @example(GONE_AND_BACK)
        def agree(steps: list[Step]) -> None:
            # A namespace of its own for each example spares making a file for each.
            namespace_id = f"ns-{next(namespaces)}"
            pair = Pair(memory, sqlite, namespace_id)
            for step in steps:
                pair.take(step)
                assert_same_buckets(memory, sqlite, namespace_id)
            assert_same_usage(memory, sqlite, namespace_id)
            deleted = run(memory.entities.delete(namespace_id, "a", EVENT))
            assert run(sqlite.entities.delete(namespace_id, "a", EVENT)) == deleted
            assert_same_buckets(memory, sqlite, namespace_id)
            assert_same_usage(memory, sqlite, namespace_id)
            purged = run(memory.namespaces.purge(namespace_id))
            assert run(sqlite.namespaces.purge(namespace_id)) == purged

        agree()
