from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from zae_limiter import UsageSnapshot
from zae_limiter.visualization import TableRenderer, UsageFormatter, format_usage_snapshots
from zae_limiter.visualization.chart import HEIGHT_ROWS, MAX_POINTS, column_chart, thinned
from zae_limiter.visualization.sparkline import ASCII_BARS, sparkline


def snapshot(hour: int, window_type: str = "hourly", **counters: int) -> UsageSnapshot:
    start, end = f"2024-01-01T{hour:02}:00:00Z", f"2024-01-01T{hour + 1:02}:00:00Z"
    return UsageSnapshot("key-1", "gpt-4", start, end, window_type, counters, 1)


def test_a_grid() -> None:
    text = TableRenderer(["left", "right"]).render(["Limit", "Used"], [("rpm", 5), ("tpm", 1000)])
    assert text.splitlines() == [
        "+-------+------+",
        "| Limit | Used |",
        "+-------+------+",
        "| rpm   |    5 |",
        "| tpm   | 1000 |",
        "+-------+------+",
    ]


def test_a_grid_is_folded_to_the_width_and_loses_nothing() -> None:
    text = TableRenderer().render(["Entity"], [("k" * 40,)], width=20)
    assert max(map(len, text.splitlines())) <= 20
    assert text.count("k") == 40


def test_a_cell_that_looks_like_markup_is_printed_unchanged() -> None:
    text = TableRenderer().render(["Name"], [("[bold]:smile:[/bold]\x1b[31m",)])
    assert "| [bold]:smile:[/bold]\\x1b[31m |" in text


def test_a_chart() -> None:
    chart = column_chart("tpm", [0, 50, 100, 0.1], "today")
    assert chart == [
        "tpm",
        "100 |  #",
        " 90 |  #",
        " 80 |  #",
        " 70 |  #",
        " 60 |  #",
        " 50 | ##",
        " 40 | ##",
        " 30 | ##",
        " 20 | ##",
        " 10 | ###",
        "  0 +----",
        "     today",
    ]


@given(st.lists(st.floats(-1e12, 1e12), max_size=200))
def test_charts_have_one_size_whatever_is_in_them(values: list[float]) -> None:
    chart = column_chart("title", values, "caption")
    assert len(chart) == HEIGHT_ROWS + 3
    columns = len(chart[-2].partition("+")[2])
    assert columns == min(len(values), MAX_POINTS)


@given(st.lists(st.integers(-1000, 1000), max_size=300), st.integers(1, 100))
def test_thinning_stands_for_every_value(values: list[int], points: int) -> None:
    shown = thinned(values, points)
    assert len(shown) == min(len(values), points)
    if values:
        assert min(values) <= min(shown)
        assert max(shown) <= max(values)
    if len(values) % points == 0 and values:
        assert abs(sum(shown) * len(values) / points - sum(values)) < 1e-6


def test_usage_as_charts_oldest_first_two_in_a_row() -> None:
    used = [snapshot(15, rpm=10, tpm=20), snapshot(14, rpm=5, tpm=40)]
    text = format_usage_snapshots(used, UsageFormatter.PLOT, width=120)
    lines = text.splitlines()
    assert lines[0].split() == ["rpm", "(hourly)", "tpm", "(hourly)"]
    assert lines[1].split() == ["10", "|", "#", "40", "|#"]
    assert "2024-01-01T14:00:00Z to 2024-01-01T15:00:00Z" in lines[-1]
    assert len(lines) == HEIGHT_ROWS + 3


def test_charts_that_do_not_fit_beside_each_other_go_below() -> None:
    used = [snapshot(15, rpm=10, tpm=20), snapshot(14, rpm=5, tpm=40)]
    text = format_usage_snapshots(used, UsageFormatter.PLOT, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert len(text.split("\n\n")) == 2


def test_charts_of_many_windows_keep_to_the_width_with_whole_timestamps() -> None:
    used = [snapshot(hour, tpm=9_999_999 * hour) for hour in range(23)]
    used += [replace(each, window_start=each.window_start.replace("-01T", "-02T")) for each in used]
    used += [replace(each, window_start=each.window_start.replace("-01-", "-02-")) for each in used]
    for formatter in (UsageFormatter.PLOT, UsageFormatter.SPARK):
        text = format_usage_snapshots(used, formatter, width=50)
        assert max(map(len, text.splitlines())) <= 50, text
        for start in ("2024-01-01T00:00:00Z", "2024-02-02T22:00:00Z"):
            assert start in text


def test_a_chart_of_small_values_has_labels_that_differ() -> None:
    labels = [line.partition("|")[0] for line in column_chart("rpm", [1, 3], "today")[1:-2]]
    assert len(set(labels)) == HEIGHT_ROWS


def test_windows_of_different_length_are_not_mixed() -> None:
    used = [snapshot(14, rpm=5), snapshot(0, "daily", rpm=500)]
    text = format_usage_snapshots(used, UsageFormatter.PLOT)
    assert "rpm (hourly)" in text
    assert "rpm (daily)" in text


def test_entities_are_added_up_in_a_chart() -> None:
    text = format_usage_snapshots([snapshot(14, rpm=5), snapshot(14, rpm=7)], UsageFormatter.PLOT)
    assert text.splitlines()[1] == "12 |#"


def test_no_usage_is_no_chart() -> None:
    assert format_usage_snapshots([], UsageFormatter.PLOT) == ""


CHANGES = [("2026-11-16T19:56:29Z", "limits_set", "root", "limits=rpm: 10/min, tpm: 10,000/min")]


def changes(width: int) -> list[str]:
    headers = ["Timestamp", "Action", "Principal", "Change"]
    return TableRenderer().render(headers, CHANGES, width).splitlines()


def test_a_grid_that_is_too_wide_is_wrapped_between_words() -> None:
    assert changes(75) == [
        "+----------------------+------------+-----------+-------------------------+",
        "| Timestamp            | Action     | Principal | Change                  |",
        "+----------------------+------------+-----------+-------------------------+",
        "| 2026-11-16T19:56:29Z | limits_set | root      | limits=rpm: 10/min,     |",
        "|                      |            |           | tpm: 10,000/min         |",
        "+----------------------+------------+-----------+-------------------------+",
    ]


def test_a_grid_whose_words_do_not_fit_is_a_block_of_lines_for_each_row() -> None:
    assert changes(50) == [
        "Timestamp: 2026-11-16T19:56:29Z",
        "Action:    limits_set",
        "Principal: root",
        "Change:    limits=rpm: 10/min, tpm: 10,000/min",
    ]


@given(st.lists(st.tuples(*[st.text("ab -東", max_size=30)] * 3), max_size=4), st.integers(20, 120))
def test_tables_keep_to_any_width_and_lose_no_character(
    rows: list[tuple[str, ...]], width: int
) -> None:
    text = TableRenderer().render(["A", "B", "C"], rows, width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    wanted = Counter("".join(cell for row in rows for cell in row))
    found = Counter(text)
    assert all(found[character] >= wanted[character] for character in "ab東")


def test_a_sparkline_is_as_high_as_its_largest_value() -> None:
    assert sparkline([0, 50, 100]) == "▁▅█"
    assert sparkline([-5, 0, 10], ASCII_BARS) == "__#"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert len(sparkline(range(1000), points=10)) == 10
