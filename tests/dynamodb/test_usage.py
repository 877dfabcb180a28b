"""Usage snapshots: found by entity, resource, window and time, in pages that fit together."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.dynamodb import NS, Costs, Runner, put
from tests.support.servers.chaos import Answer, ChaosProxy, Pass
from zae_limiter.backends.dynamodb.schema import (
    gsi2_pk_resource,
    gsi2_sk_usage,
    name_attr,
    pk_entity,
    sk_usage,
)
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.exceptions import StoredDataWarning, ValidationError
from zae_limiter.core.models import UsageSnapshot
from zae_limiter.core.windows import WINDOW_TYPES, WindowType, iso, window_end, window_key
from zae_limiter.ports.repository_protocol import UsageQuery

MAY = datetime(2024, 5, 1, tzinfo=UTC)


def snapshot(
    window: WindowType, start: datetime, entity_id: str = "a", resource: str = "gpt-4"
) -> UsageSnapshot:
    counters = {"rpm": start.day, "tpm": start.hour + 1}
    ends = iso(window_end(window, start))
    return UsageSnapshot(entity_id, resource, iso(start), ends, window, counters, 3)


async def store_snapshot(store: DynamoStore, snap: UsageSnapshot, **values: Any) -> None:
    start = datetime.fromisoformat(snap.window_start)
    key = window_key(snap.window_type, start)  # type: ignore[arg-type]
    pk = pk_entity(NS, snap.entity_id)
    said = {
        "entity_id": snap.entity_id,
        "resource": snap.resource,
        "window": snap.window_type,
        "window_start": snap.window_start,
        "total_events": snap.total_events,
        "GSI2PK": gsi2_pk_resource(NS, snap.resource),
        "GSI2SK": gsi2_sk_usage(key, snap.entity_id),
        "GSI4PK": NS,
        "GSI4SK": pk,
        "ttl": 2_000_000_000,
        **{name_attr(name): amount for name, amount in snap.counters.items()},
    }
    await put(store, **{"PK": pk, "SK": sk_usage(snap.resource, key), **said, **values})


def weeks_of_usage() -> list[UsageSnapshot]:
    """Hours around the turn of a month, and the days and months they are in."""
    starts = [MAY + timedelta(hours=hour) for hour in (-49, -24, -1, 0, 1, 23, 24)]
    days = {start.replace(hour=0) for start in starts}
    windows: dict[WindowType, set[datetime]] = {
        "hourly": set(starts),
        "daily": days,
        "monthly": {day.replace(day=1) for day in days},
    }
    return [
        snapshot(window, start, entity_id, resource)
        for window in WINDOW_TYPES
        for start in sorted(windows[window])
        for entity_id, resource in (("a", "gpt-4"), ("b", "gpt-4"), ("a", "gpt-3"), ("a-b", "x:y"))
    ]


USAGE = weeks_of_usage()
TIMES = sorted({snap.window_start for snap in USAGE} | {"2024-04-30T12:34:56Z", "2023", "2025"})
QUERIES = st.builds(
    UsageQuery,
    entity_id=st.sampled_from([None, "a", "b", "a-b", "nobody"]),
    resource=st.sampled_from([None, "gpt-4", "gpt-3", "x:y", "gpt"]),
    window_type=st.sampled_from([None, *WINDOW_TYPES]),
    start_time=st.sampled_from([None, *TIMES]),
    end_time=st.sampled_from([None, *TIMES]),
).filter(lambda query: query.entity_id or query.resource)


def wanted(query: UsageQuery) -> list[tuple[Any, ...]]:
    return sorted(
        plain(snap)
        for snap in USAGE
        if query.entity_id in (None, snap.entity_id)
        and query.resource in (None, snap.resource)
        and query.window_type in (None, snap.window_type)
        and (query.start_time is None or snap.window_start >= query.start_time)
        and (query.end_time is None or snap.window_start <= query.end_time)
    )


def plain(snap: UsageSnapshot) -> tuple[Any, ...]:
    counters = tuple(sorted(snap.counters.items()))
    where = (snap.entity_id, snap.resource, snap.window_type)
    return (*where, snap.window_start, snap.window_end, counters, snap.total_events)


async def pages(store: DynamoStore, query: UsageQuery, size: int) -> list[UsageSnapshot]:
    found: list[UsageSnapshot] = []
    cursor: str | None = None
    while True:
        page, cursor = await store.usage.read(NS, query, size, cursor)
        assert len(page) == size or cursor is None
        found += page
        if cursor is None:
            return found


@pytest.fixture
def filled(store: DynamoStore, driver: Runner) -> DynamoStore:
    for snap in USAGE:
        driver.run(store_snapshot(store, snap))
    return store


def test_every_query_finds_what_it_asks_for_newest_first_in_pages_of_any_size(
    filled: DynamoStore, driver: Runner
) -> None:
    @settings(
        max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(QUERIES, st.sampled_from([1, 2, 5, 1000]))
    def check(query: UsageQuery, size: int) -> None:
        found = driver.run(pages(filled, query, size))
        starts = [snap.window_start for snap in found]
        assert starts == sorted(starts, reverse=True)
        assert sorted(map(plain, found)) == wanted(query)

    check()


def test_of_windows_that_start_together_the_shortest_comes_first(
    filled: DynamoStore, driver: Runner
) -> None:
    for query in (UsageQuery("a"), UsageQuery("a", "gpt-4"), UsageQuery(resource="gpt-4")):
        at_turn = replace(query, start_time=iso(MAY), end_time=iso(MAY))
        found = driver.run(pages(filled, at_turn, 100))
        kinds = [WINDOW_TYPES.index(snap.window_type) for snap in found]
        assert kinds == sorted(kinds)
        assert set(kinds) == {0, 1, 2}


@pytest.mark.parametrize(
    "query", [UsageQuery("a"), UsageQuery("a", "gpt-4"), UsageQuery(resource="gpt-4")], ids=str
)
def test_usage_counted_between_two_pages_hides_and_repeats_no_snapshot(
    filled: DynamoStore, driver: Runner, query: UsageQuery
) -> None:
    first, cursor = driver.run(filled.usage.read(NS, query, 3, None))
    for hours in (30, 31, 5):
        new = snapshot("hourly", MAY + timedelta(hours=hours))
        driver.run(store_snapshot(filled, new))
    rest, cursor = driver.run(filled.usage.read(NS, query, 1000, cursor))
    assert cursor is None
    old = [plain(s) for s in [*first, *rest] if s.window_start != iso(MAY + timedelta(hours=5))]
    assert sorted(old) == wanted(query)
    assert len(old) == len(set(old))


def test_a_page_costs_what_it_brings(filled: DynamoStore, driver: Runner) -> None:
    for query, calls in (
        (UsageQuery("a", "gpt-4"), {"Query": 1}),
        (UsageQuery(resource="gpt-4"), {"Query": 1, "BatchGetItem": 1}),
        (UsageQuery("a"), {"Query": 1}),
    ):
        costs = Costs(filled)
        driver.run(filled.usage.read(NS, query, 5, None))
        assert costs.calls == calls
        assert costs.units("GSI2") <= 0.5


@pytest.mark.parametrize("cursor", ["", "0", "#", "2024-05-01#a#b", "2024-05-01T", "x" * 3000])
def test_a_cursor_that_no_page_returned_is_refused(
    store: DynamoStore, driver: Runner, cursor: str
) -> None:
    costs = Costs(store)
    with pytest.raises(ValidationError, match="next_key"):
        driver.run(store.usage.read(NS, UsageQuery("a"), 5, cursor))
    assert costs.calls == {}


def test_a_cursor_of_another_query_does_no_harm(filled: DynamoStore, driver: Runner) -> None:
    query = UsageQuery("a", "gpt-4", start_time="2024-05-01T00:00:00Z")
    assert driver.run(filled.usage.read(NS, query, 5, "2020-01-01")) == ([], None)


@pytest.mark.parametrize("name", ["PK", "GSI2SK", "ttl", "window", "total_events", "resource"])
def test_a_limit_may_be_called_like_an_attribute(
    store: DynamoStore, driver: Runner, name: str
) -> None:
    snap = replace(snapshot("hourly", MAY), counters={name: 7, "rpm": 1})
    driver.run(store_snapshot(store, snap))
    assert driver.run(store.usage.read(NS, UsageQuery("a"), 5, None)) == ([snap], None)


def test_foreign_attributes_of_a_snapshot_are_no_counters(
    store: DynamoStore, driver: Runner
) -> None:
    snap = snapshot("daily", MAY)
    others = {"rpm#od": 4, "seen": "49590338271490256608559692538361571095921575989136588898"}
    driver.run(store_snapshot(store, snap, **others))
    assert driver.run(store.usage.read(NS, UsageQuery("a"), 5, None)) == ([snap], None)


def test_a_day_as_older_clients_key_it(store: DynamoStore, driver: Runner) -> None:
    snap = snapshot("daily", MAY)
    sk = sk_usage("gpt-4", snap.window_start)
    gsi2_sk = gsi2_sk_usage(snap.window_start, "a")
    driver.run(store_snapshot(store, snap, SK=sk, GSI2SK=gsi2_sk))
    for query in (UsageQuery("a"), UsageQuery("a", "gpt-4"), UsageQuery(resource="gpt-4")):
        at = replace(query, window_type="daily", start_time=iso(MAY), end_time=iso(MAY))
        assert driver.run(pages(store, at, 1)) == [snap]


def test_a_snapshot_that_is_gone_is_left_out(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    """An index may still show what the table no longer has."""
    for hours in range(5):
        patient.run(store_snapshot(shaky, snapshot("hourly", MAY + timedelta(hours=hours))))
    nothing: dict[str, Any] = {"Responses": {shaky.table.name: []}, "UnprocessedKeys": {}}
    proxy.use([Pass(), Answer(200, json.dumps(nothing).encode())])
    found = patient.run(pages(shaky, UsageQuery(resource="gpt-4"), 1))
    oldest = [iso(MAY + timedelta(hours=1)), iso(MAY)]
    assert [snap.window_start for snap in found] == oldest


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"window": "weekly"}, "window is 'weekly'"),
        ({"window_start": "yesterday"}, "Invalid isoformat string"),
        ({"window_start": "9999-12-31T23:00:00Z"}, "out of range"),
        ({"total_events": None}, "total_events is None"),
        ({"window_start": "9999-12-31T23:00:00Z"}, "date value out of range"),
    ],
    ids=str,
)
def test_a_snapshot_that_cannot_be_read_is_left_out_with_a_warning(
    store: DynamoStore, driver: Runner, damage: dict[str, Any], reason: str
) -> None:
    others = [snapshot("hourly", MAY + timedelta(hours=hours)) for hours in (1, -1)]
    for snap in others:
        driver.run(store_snapshot(store, snap))
    driver.run(store_snapshot(store, snapshot("hourly", MAY), **damage))
    for query in (UsageQuery("a"), UsageQuery("a", "gpt-4"), UsageQuery(resource="gpt-4")):
        with pytest.warns(StoredDataWarning, match=reason) as warned:
            assert driver.run(pages(store, query, 1)) == others
        assert f"{NS}/ENTITY#a #USAGE#gpt-4#2024-05-01T00:00:00Z" in str(warned[0].message)


def test_a_key_without_a_window_is_left_out_with_a_warning(
    store: DynamoStore, driver: Runner
) -> None:
    driver.run(store_snapshot(store, snapshot("hourly", MAY), SK="#USAGE#gpt-4"))
    with pytest.warns(StoredDataWarning, match="names no window"):
        assert driver.run(pages(store, UsageQuery("a"), 5)) == []
