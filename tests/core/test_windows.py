from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter.core.windows import (
    HOUR_MS,
    WINDOW_TYPES,
    WindowType,
    hour_start_ms,
    iso,
    iso_ms,
    next_window,
    parse_iso,
    window_end,
    window_key,
    window_start,
)

MOMENTS_MS = st.integers(0, 4_102_444_800_000)  # up to the year 2100


def ms(text: str) -> int:
    return int(parse_iso(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "moment", "start", "end", "key"),
    [
        (
            "hourly",
            "2024-01-01T14:59:59.999Z",
            "2024-01-01T14:00:00Z",
            "2024-01-01T15:00:00Z",
            "2024-01-01T14:00:00Z",
        ),
        (
            "hourly",
            "2023-12-31T23:00:00Z",
            "2023-12-31T23:00:00Z",
            "2024-01-01T00:00:00Z",
            "2023-12-31T23:00:00Z",
        ),
        (
            "daily",
            "2024-02-28T14:30:00Z",
            "2024-02-28T00:00:00Z",
            "2024-02-29T00:00:00Z",
            "2024-02-28",
        ),
        (
            "daily",
            "2023-12-31T23:59:59Z",
            "2023-12-31T00:00:00Z",
            "2024-01-01T00:00:00Z",
            "2023-12-31",
        ),
        (
            "monthly",
            "2024-02-29T14:30:00Z",
            "2024-02-01T00:00:00Z",
            "2024-03-01T00:00:00Z",
            "2024-02",
        ),
        (
            "monthly",
            "2023-12-01T00:00:00Z",
            "2023-12-01T00:00:00Z",
            "2024-01-01T00:00:00Z",
            "2023-12",
        ),
        (
            "monthly",
            "2024-01-31T23:59:59Z",
            "2024-01-01T00:00:00Z",
            "2024-02-01T00:00:00Z",
            "2024-01",
        ),
    ],
)
def test_windows(window: WindowType, moment: str, start: str, end: str, key: str) -> None:
    found = window_start(window, ms(moment))
    assert iso(found) == start
    assert iso(next_window(window, found)) == end
    assert window_end(window, found) == next_window(window, found) - timedelta(seconds=1)
    assert window_key(window, found) == key


@pytest.mark.parametrize("window", WINDOW_TYPES)
@quick
@given(MOMENTS_MS)
def test_every_moment_is_in_exactly_one_window_of_each_type(window: WindowType, at_ms: int) -> None:
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    start = window_start(window, at_ms)
    end = next_window(window, start)
    assert start <= moment < end
    assert moment <= window_end(window, start)
    assert window_start(window, int(start.timestamp() * 1000)) == start
    assert window_start(window, int(end.timestamp() * 1000)) == end


@quick
@given(MOMENTS_MS)
def test_keys_of_different_types_never_meet(at_ms: int) -> None:
    keys = {window_key(window, window_start(window, at_ms)) for window in WINDOW_TYPES}
    assert len(keys) == len(WINDOW_TYPES)


@quick
@given(MOMENTS_MS)
def test_hours_start_on_the_hour(at_ms: int) -> None:
    start_ms = hour_start_ms(at_ms)
    assert start_ms % HOUR_MS == 0
    assert 0 <= at_ms - start_ms < HOUR_MS
    assert iso_ms(start_ms) == iso(window_start("hourly", at_ms))


def test_the_end_of_a_window_is_its_last_second() -> None:
    ends = {
        window: iso(window_end(window, window_start(window, ms("2024-02-10T14:30Z"))))
        for window in WINDOW_TYPES
    }
    assert ends == {
        "hourly": "2024-02-10T14:59:59Z",
        "daily": "2024-02-10T23:59:59Z",
        "monthly": "2024-02-29T23:59:59Z",
    }


class TestIso:
    def test_is_in_utc_to_the_second(self) -> None:
        berlin = timezone(timedelta(hours=2))
        assert iso(datetime(2024, 5, 1, 1, 2, 3, 999, berlin)) == "2024-04-30T23:02:03Z"
        assert iso_ms(1_704_067_200_999) == "2024-01-01T00:00:00Z"

    @pytest.mark.parametrize(
        "text",
        [
            "2024-01-01T10:00:00Z",
            "2024-01-01T10:00:00",
            "2024-01-01T12:00:00+02:00",
            "2024-01-01 10:00",
        ],
    )
    def test_parsing_takes_a_naive_moment_for_utc(self, text: str) -> None:
        assert parse_iso(text) == datetime(2024, 1, 1, 10, tzinfo=UTC)

    def test_a_day_is_its_first_moment(self) -> None:
        assert parse_iso("2024-01-01") == datetime(2024, 1, 1, tzinfo=UTC)

    def test_a_text_that_is_no_moment_is_refused(self) -> None:
        with pytest.raises(ValueError, match="yesterday"):
            parse_iso("yesterday")
