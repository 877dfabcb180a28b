"""The demo's screen is rendered at a fixed width."""

from __future__ import annotations

import io
import json
from fractions import Fraction

import pytest
from rich.console import Console, RenderableType

from zae_limiter.cli.demo import screen
from zae_limiter.cli.demo.record import Record, Tally
from zae_limiter.cli.demo.report import Report, make_report
from zae_limiter.cli.demo.scenario import LIMITS, jobs
from zae_limiter.cli.demo.view import View

JOBS = jobs("sqlite:///limits.db", "demo", 2)
VIEW = View(
    elapsed_s=2.5,
    seconds=10,
    admitted=180,
    refused=1234,
    tallies={("acme", "tps"): Tally(18_500_000, -500_000, 1234)},
    balances={("acme", "rps"): 0, ("acme", "tps"): -120, ("acme-web", "tps"): 1_250},
)


def rendered(drawing: RenderableType, width: int, *, colours: bool = False) -> str:
    text = io.StringIO()
    console = Console(
        file=text,
        width=width,
        force_terminal=colours,
        color_system="standard" if colours else None,
        highlight=False,
    )
    console.print(drawing)
    return text.getvalue()


def record(*lines: dict[str, object]) -> Record:
    found = Record()
    for line in lines:
        found.add(1, json.dumps(line))
    return found


def admission(tokens: int, at_ms: int) -> dict[str, object]:
    moves = {"acme": {"rps": tokens * 1000}, "acme-web": {"rps": tokens * 1000}}
    return {"kind": "admitted", "began_ms": at_ms, "ended_ms": at_ms, "moves": moves}


GOOD = make_report(JOBS, record(admission(30, 5_000), admission(15, 5_500)), 1.0)
BAD = make_report(JOBS, record(admission(30, 5_000), admission(16, 5_500)), 1.0)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "drawing",
    [screen.live(VIEW), screen.final(GOOD, ascii_only=True), screen.final(BAD, ascii_only=False)],
    ids=["live", "final", "exceeded"],
)
def test_the_demo_screen_fits_its_width_and_cuts_nothing_off(
    drawing: RenderableType, width: int
) -> None:
    text = rendered(drawing, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_the_live_table_shows_every_limit() -> None:
    text = rendered(screen.live(VIEW), 80)
    assert "2.5 of 10 s" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert sum(" of " in row for row in rows) == 1 + sum(len(each) for each in LIMITS.values())
    tokens = next(row for row in rows if "6,000" in row)
    assert tokens.startswith("tps 4,000/sec 18,000 1,234")
    assert tokens.endswith("-120 of 6,000")
    assert any(row.startswith("acme-web rps 30/sec 0 0") for row in rows)


def test_the_demo_uses_colours_on_terminals_only() -> None:
    assert "\x1b[" not in rendered(screen.live(VIEW), 80)
    assert "\x1b[" in rendered(screen.live(VIEW), 80, colours=True)


def test_the_final_table_compares_what_was_taken_with_what_was_allowed() -> None:
    text = rendered(screen.final(GOOD, ascii_only=True), 80)
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "| acme-web | rps | 45 <= 45 | 30 <= 30 in 0.00 s | yes |" in rows
    assert "| acme-web | tps | 0 <= 2,505 | 0 <= 2,505 in 0.00 s | yes |" in rows
    assert "OK: every limit was kept." in rows
    assert text.isascii()


def test_a_limit_that_was_exceeded_is_shown() -> None:
    text = rendered(screen.final(BAD, ascii_only=True), 80)
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "| acme-web | rps | 46 > 45 | 46 > 45 in 0.50 s | NO |" in rows
    assert "NOT OK: a limit was exceeded." in rows


def test_failures_and_interruptions_are_shown() -> None:
    report = make_report(
        JOBS,
        record({"kind": "unavailable", "reason": "locked"}),
        1.0,
        interrupted=True,
        failures=["worker 2 was killed by signal 9"],
    )
    text = rendered(screen.final(report, ascii_only=True), 80)
    assert "FAILED: worker 2 was killed by signal 9" in text
    assert "Interrupted: this is what ran so far." in text
    assert "The store did not answer 1 time(s)." in text
    assert "NOT OK: every limit was kept, but the demo failed." in text


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (GOOD, 0),
        (BAD, 1),
        (make_report(JOBS, Record(), 1.0, failures=["worker 1 died"]), 1),
        (make_report(JOBS, Record(), 1.0, interrupted=True), 130),
    ],
    ids=["kept", "exceeded", "died", "interrupted"],
)
def test_the_exit_code_says_whether_limits_were_kept(report: Report, code: int) -> None:
    assert report.exit_code == code
    assert json.loads(json.dumps(report.to_dict()))["holds"] is (report is not BAD)


def test_the_demo_report_says_how_much_was_taken_and_allowed() -> None:
    limit = next(
        each
        for each in BAD.to_dict()["limits"]
        if (each["entity_id"], each["name"]) == ("acme-web", "rps")
    )
    assert limit["whole_run"]["taken"] == 46
    # Two milliseconds for times that are rounded down.
    assert limit["whole_run"]["allowed"] == float(30 + Fraction(30 * 502, 1000))
    assert limit["worst_interval"]["start_ms"] == 5_000
    assert limit["holds"] is False


def test_a_record_keeps_corrections_that_began_and_that_ended() -> None:
    moves = {"acme": {"tps": -5_000, "rps": 0}}
    begun = {"kind": "correcting", "number": 7, "began_ms": 10, "moves": moves}
    found = record({"kind": "ready"}, begun)
    assert [m.ended_ms for m in found.movements["acme", "tps"]] == [None]
    assert not found.movements["acme", "rps"]
    assert found.longest_call_ms == 0
    found.add(1, json.dumps({"kind": "corrected", "number": 7, "ended_ms": 25}))
    assert found.longest_call_ms == 15
    assert found.tallies["acme", "tps"].corrected_milli == -5_000


def test_a_record_counts_refusals_by_entity_and_limit() -> None:
    found = record({"kind": "refused", "short": [["acme", "tps"], ["acme-web", "tps"]]})
    assert found.refused[1] == 1
    assert found.tallies["acme", "tps"].refused == 1


def test_an_unknown_line_of_a_log_is_an_error() -> None:
    with pytest.raises(ValueError, match="no record is of kind 'dance'"):
        record({"kind": "dance"})
