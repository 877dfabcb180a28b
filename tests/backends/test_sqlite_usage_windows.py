"""Pages of usage in SQLite, window by window."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sqlite import opened
from zae_limiter.backends.paging import within_times
from zae_limiter.backends.sqlite import SqliteStore, usage_windows
from zae_limiter.backends.sqlite.usage import _where, add_usage
from zae_limiter.core.exceptions import ValidationError
from zae_limiter.core.models import UsageSnapshot
from zae_limiter.core.usage import UsageCounts, UsageHour, newest_first_text, snapshots
from zae_limiter.core.windows import HOUR_MS, WINDOW_TYPES, iso_ms
from zae_limiter.ports.repository_protocol import UsageQuery
from zae_limiter.runtime.blocking import run

# Some hours before the end of a month, so that windows of every type end among those drawn.
_FIRST_MS = 1_706_745_600_000 - 3 * HOUR_MS
HOURS_MS = [_FIRST_MS + number * HOUR_MS for number in (0, 1, 2, 3, 4, 27, 28, 700)]
ENTITIES = ["a", "b", "b2", "c"]
RESOURCES = ["gpt-4", "gpt-5"]
KEYS = st.sets(
    st.tuples(st.sampled_from(ENTITIES), st.sampled_from(RESOURCES), st.sampled_from(HOURS_MS))
)
TIMES = st.none() | st.sampled_from(HOURS_MS).map(iso_ms)
QUERIES = st.builds(
    UsageQuery,
    st.none() | st.sampled_from(ENTITIES),
    st.none() | st.sampled_from(RESOURCES),
    st.none() | st.sampled_from(WINDOW_TYPES),
    TIMES,
    TIMES,
)


def all_pages(store: SqliteStore, query: UsageQuery, limit: int) -> list[UsageSnapshot]:
    found: list[UsageSnapshot] = []
    cursor = None
    while True:
        page, cursor = run(store.usage.read("ns", query, limit, cursor))
        assert len(page) <= limit
        found += page
        if cursor is None:
            return found


@given(KEYS, QUERIES, st.integers(1, 5))
def test_pages_of_any_query_hold_its_snapshots_in_order(
    keys: set[tuple[str, str, int]], query: UsageQuery, limit: int
) -> None:
    counts = UsageCounts({"rpd": 1000}, 1)
    with TemporaryDirectory() as folder, opened(Path(folder) / "limits.db") as store:
        with closing(sqlite3.connect(Path(folder) / "limits.db")) as db:
            for entity_id, resource, hour_ms in keys:
                add_usage(db, ("ns", entity_id, resource), hour_ms, counts)
            db.commit()
        hours = [
            UsageHour(entity_id, resource, hour_ms, counts)
            for entity_id, resource, hour_ms in keys
            if query.entity_id in (None, entity_id) and query.resource in (None, resource)
        ]
        expected = list(within_times(snapshots(hours, query.window_type), query))
        assert all_pages(store, query, limit) == expected


@pytest.mark.parametrize("hours", [usage_windows._ONE_HOUR, usage_windows._SEVERAL_HOURS])
def test_a_page_is_read_in_the_order_of_owners_without_sorting_them(
    tmp_path: Path, hours: str
) -> None:
    where, _ = _where("ns", None, "gpt-4", after="")
    select = usage_windows._SELECT_OWNERS.format(where=where, hours=hours)
    with opened(tmp_path / "limits.db"), closing(sqlite3.connect(tmp_path / "limits.db")) as db:
        steps = db.execute(f"EXPLAIN QUERY PLAN {select}", (None,) * select.count("?"))
        plan = "\n".join(step[3] for step in steps)
    # The owners of both tables are merged, and those are no more than a page.
    sources = [line for line in plan.splitlines() if "usage" in line or "buckets" in line]
    assert all("entity_id>" in line or "hour_ms=?" in line for line in sources), plan
    assert plan.count("TEMP B-TREE FOR DISTINCT") == 0, plan


@pytest.mark.parametrize(
    "place", [("x", 0, "a", "b"), (newest_first_text("2024-01-01T00:00:00Z"), 3, "a", "b")]
)
def test_a_cursor_of_no_window_is_refused(tmp_path: Path, place: tuple[str, int, str, str]) -> None:
    with (
        opened(tmp_path / "limits.db") as store,
        pytest.raises(ValidationError, match="previous page"),
    ):
        run(store.usage.read("ns", UsageQuery(resource="gpt-4"), 10, json.dumps(place)))
