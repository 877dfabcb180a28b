from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter.core.bucket import Bucket, full_bucket, stamp, take_tokens
from zae_limiter.core.limit import Limit, LimitSet
from zae_limiter.core.models import UsageSnapshot, UsageSummary
from zae_limiter.core.usage import UsageCounts, UsageHour, consumption, snapshots, summarize
from zae_limiter.core.validation import WCU
from zae_limiter.core.windows import HOUR_MS, WINDOW_TYPES, WindowType, parse_iso

LIMITS = LimitSet.of([Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6000)])
FULL = full_bucket(LIMITS, 0)


class TestConsumption:
    USED = take_tokens(FULL, {"rpm": 2000, "tpm": 500_000}, 2)

    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            (None, FULL, UsageCounts({}, 0)),
            (None, USED, UsageCounts({"rpm": 2000, "tpm": 500_000}, 2)),
            (FULL, USED, UsageCounts({"rpm": 2000, "tpm": 500_000}, 2)),
            (USED, take_tokens(USED, {"tpm": 1}, 0), UsageCounts({"tpm": 1}, 0)),
            (USED, USED, UsageCounts({}, 0)),
            (USED, FULL, UsageCounts({"rpm": -2000, "tpm": -500_000}, -2)),
        ],
    )
    def test_is_what_the_counters_moved(
        self, before: Bucket | None, after: Bucket, expected: UsageCounts
    ) -> None:
        assert consumption(before, after) == expected

    def test_refilling_consumes_nothing(self) -> None:
        cells = {n: c._replace(tokens_milli=c.tokens_milli + 5) for n, c in self.USED.cells.items()}
        assert not consumption(self.USED, self.USED._replace(cells=cells))

    def test_the_limiters_own_writes_are_no_usage(self) -> None:
        metered = full_bucket(LIMITS, 0, metered=True)
        assert not consumption(metered, take_tokens(metered, {WCU: 1000}, 0))
        assert not consumption(None, take_tokens(metered, {WCU: 1000}, 0))

    def test_a_limit_that_is_new_counts_from_zero_and_one_that_went_not_at_all(self) -> None:
        other = LimitSet.of([Limit.per_minute("rpm", 60), Limit.per_day("rpd", 9)])
        after = take_tokens(stamp(self.USED, other), {"rpd": 1000}, 1)
        assert consumption(self.USED, after) == UsageCounts({"rpd": 1000}, 1)


class TestCounts:
    def test_they_add_up(self) -> None:
        counts = UsageCounts({"rpm": 1}, 1)
        counts.add(UsageCounts({"rpm": 2, "tpm": -5}, 3))
        assert counts == UsageCounts({"rpm": 3, "tpm": -5}, 4)

    @pytest.mark.parametrize(
        ("counts", "says"),
        [
            (UsageCounts(), False),
            (UsageCounts({"rpm": 0}), False),
            (UsageCounts({"rpm": -1}), True),
            (UsageCounts({}, 1), True),
        ],
    )
    def test_they_say_whether_anything_was_counted(self, counts: UsageCounts, says: bool) -> None:
        assert bool(counts) is says


def hour(text: str, events: int = 1, entity: str = "key", **tokens: int) -> UsageHour:
    start_ms = int(parse_iso(text).timestamp() * 1000)
    counts = UsageCounts({name: n * 1000 for name, n in tokens.items()}, events)
    return UsageHour(entity, "gpt-4", start_ms, counts)


HOURS = [
    hour("2024-01-31T22:00Z", 2, rpm=2, tpm=100),
    hour("2024-01-31T23:00Z", 1, rpm=1, tpm=40),
    hour("2024-02-01T00:00Z", 5, rpm=5),
]


def snapshot(window: str, start: str, end: str, events: int, **counters: int) -> UsageSnapshot:
    return UsageSnapshot(
        "key", "gpt-4", f"{start}:00:00Z", f"{end}:59:59Z", window, counters, events
    )


HOURLY = [
    snapshot("hourly", "2024-02-01T00", "2024-02-01T00", 5, rpm=5),
    snapshot("hourly", "2024-01-31T23", "2024-01-31T23", 1, rpm=1, tpm=40),
    snapshot("hourly", "2024-01-31T22", "2024-01-31T22", 2, rpm=2, tpm=100),
]
DAILY = [
    snapshot("daily", "2024-02-01T00", "2024-02-01T23", 5, rpm=5),
    snapshot("daily", "2024-01-31T00", "2024-01-31T23", 3, rpm=3, tpm=140),
]
MONTHLY = [
    snapshot("monthly", "2024-02-01T00", "2024-02-29T23", 5, rpm=5),
    snapshot("monthly", "2024-01-01T00", "2024-01-31T23", 3, rpm=3, tpm=140),
]


class TestSnapshots:
    @pytest.mark.parametrize(
        ("window", "expected"), [("hourly", HOURLY), ("daily", DAILY), ("monthly", MONTHLY)]
    )
    def test_hours_add_up_to_windows_newest_first(
        self, window: WindowType, expected: list[UsageSnapshot]
    ) -> None:
        assert snapshots(HOURS, window) == expected
        assert snapshots(reversed(HOURS), window) == expected

    def test_all_types_come_together_by_their_start(self) -> None:
        assert snapshots(HOURS, None) == [
            HOURLY[0],
            DAILY[0],
            MONTHLY[0],
            HOURLY[1],
            HOURLY[2],
            DAILY[1],
            MONTHLY[1],
        ]

    def test_entities_and_resources_are_kept_apart_in_order(self) -> None:
        hours = [hour("2024-01-01T00:00Z", entity=entity, rpm=1) for entity in ("b", "a", "b")]
        found = snapshots(hours, "hourly")
        assert [(s.entity_id, s.counters, s.total_events) for s in found] == [
            ("a", {"rpm": 1}, 1),
            ("b", {"rpm": 2}, 2),
        ]

    def test_nothing_counted_gives_nothing(self) -> None:
        assert snapshots([], None) == []

    def test_adding_hours_up_leaves_the_hours_unchanged(self) -> None:
        hours = [hour("2024-01-01T00:00Z", rpm=1), hour("2024-01-01T01:00Z", rpm=1)]
        snapshots(iter(hours), None)
        assert [h.counts for h in hours] == [UsageCounts({"rpm": 1000}, 1)] * 2

    @quick
    @given(
        st.lists(
            st.builds(
                UsageHour,
                st.sampled_from(["a", "b"]),
                st.sampled_from(["x", "y"]),
                st.integers(473_000, 475_000).map(lambda number: number * HOUR_MS),
                st.builds(
                    UsageCounts,
                    st.dictionaries(
                        st.sampled_from(["rpm", "tpm"]),
                        st.integers(-5, 50).map(lambda tokens: tokens * 1000),
                    ),
                    st.integers(0, 9),
                ),
            ),
            max_size=12,
        )
    )
    def test_every_type_of_window_has_the_same_sums(self, hours: list[UsageHour]) -> None:
        def sums(found: list[UsageSnapshot]) -> Iterator[object]:
            for entity in ("a", "b"):
                for resource in ("x", "y"):
                    ours = [s for s in found if (s.entity_id, s.resource) == (entity, resource)]
                    yield sum(s.total_events for s in ours)
                    for name in ("rpm", "tpm"):
                        yield sum(s.counters.get(name, 0) for s in ours)

        by_window = [snapshots(hours, window) for window in WINDOW_TYPES]
        hourly, *longer = (list(sums(found)) for found in by_window)
        assert all(total == hourly for total in longer)
        for found in [*by_window, snapshots(hours, None)]:
            starts = [s.window_start for s in found]
            assert starts == sorted(starts, reverse=True)
            assert len(
                {(s.window_type, s.window_start, s.entity_id, s.resource) for s in found}
            ) == len(found)


class TestSummary:
    def test_totals_and_averages_over_those_that_have_the_limit(self) -> None:
        assert summarize(HOURLY) == UsageSummary(
            3,
            {"rpm": 8, "tpm": 140},
            {"rpm": 8 / 3, "tpm": 70.0},
            "2024-01-31T22:00:00Z",
            "2024-02-01T00:00:00Z",
        )

    def test_nothing_is_nothing(self) -> None:
        assert summarize([]) == UsageSummary(0, {}, {}, None, None)
