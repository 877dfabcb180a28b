from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from bench.costs import Cost
from bench.markdown import markdown
from bench.subjects import BARE, Subject, on_dynamodb
from bench.summary import Counted, Row, Sample
from bench.targets import Target, targets
from bench.workloads import WORKLOADS
from bench.workloads.shared import FIRST, LAST, shared_job
from bench.workloads.workload import QUICK, Case, Workload

OURS, _, _, EXISTING = on_dynamodb("Async")


def workload(name: str) -> Workload:
    return next(each for each in WORKLOADS if each.name == name)


def row(
    subject: Subject, faster: float | None, leaner: float | None, counted: Counted | None = None
) -> Row:
    typical = Sample(1000.0, 10.0, 1.0, 2.0, 10, 0)
    case = Case(subject, shared_job(subject, QUICK))
    return Row(case, "1.0", [typical], typical, faster, leaner, None, counted)


def only(name: str, rows: Sequence[Row]) -> Target:
    (found,) = targets([(workload(name), rows)])
    return found


@pytest.mark.parametrize("name", ["shared-one-key", "shared-50-keys", "shared-threads"])
@pytest.mark.parametrize(("leaner", "met"), [(5.0, True), (4.9, False)])
def test_client_cpu(name: str, leaner: float, met: bool) -> None:
    found = only(name, [row(OURS, None, None), row(EXISTING, 1.0, leaner)])
    assert found.found == f"{leaner} times less"
    assert found.met is met


@pytest.mark.parametrize(("share", "met"), [(0.85, True), (0.84, False)])
def test_share_of_what_the_server_can_do(share: float, met: bool) -> None:
    found = only("shared-50-keys", [row(OURS, None, None), row(BARE, share, 1.0)])
    assert found.found == f"{100 * share:.0f} %"
    assert "1,000 bare" in found.what
    assert found.met is met


@pytest.mark.parametrize(("faster", "met"), [(20.0, True), (19.0, False)])
def test_pace_at_a_hot_key(faster: float, met: bool) -> None:
    assert only("shared-hot-200", [row(EXISTING, faster, 1.0)]).met is met


@pytest.mark.parametrize(("wcu", "met"), [(10.0, True), (11.0, False)])
def test_units_at_a_hot_key(wcu: float, met: bool) -> None:
    counted = Counted(Cost(5, wcu=wcu), 100, 100, 1.0)
    assert only("shared-hot-200", [row(OURS, None, None, counted)]).met is met


@pytest.mark.parametrize(
    ("cost", "beyond"),
    [
        (Cost(28, refused=18), 0),
        (Cost(28, refused=18, again=1), 1),
        (Cost(30, refused=18), 2),
    ],
)
def test_calls_for_refusals(cost: Cost, beyond: int) -> None:
    """Ten were admitted. Each of nine buckets was asked in two seconds."""
    counted = Counted(cost, 100, 10, 1.0)
    found = only("shared-refusals", [row(OURS, None, None, counted)])
    assert found.found.startswith(f"{beyond} for 90 refusals")
    assert found.met is (beyond == 0)


@pytest.mark.parametrize(("last", "met"), [(800.0, True), (799.0, False)])
def test_the_server_is_as_fast_at_the_end(last: float, met: bool) -> None:
    before = row(BARE, None, None)
    after = replace(before, typical=replace(before.typical, calls_per_s=last))
    (found,) = targets([(FIRST, [before]), (LAST, [after])])
    assert found.met is met


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert targets([(workload("memory"), [row(OURS, None, None)])]) == []


def test_tables_have_the_columns_that_say_something() -> None:
    def told(label: str, store: str, counted: dict[str, float] | None) -> dict[str, object]:
        figures = {"calls_per_s": 1234.5, "cpu_us": 5.25, "p50_us": 1.0, "p99_us": 9999.0}
        rest = {"bound": None, "footprint_bytes": None}
        return {
            "label": label,
            "point": "",
            "does": {"store": store},
            "median": figures | rest,
            "faster": 12.3,
            "leaner": None,
            "growth": None,
            "counted": counted,
        }

    counted = {"calls": 0.5, "wcu": 1.0, "rcu": 0.0, "dollars_per_million": 0.625}
    rows = [told("a", "dynamodb", counted), told("b", "redis", counted)]
    text = markdown({"workloads": [{"title": "T", "rows": rows}], "targets": []})
    assert text.splitlines() == [
        "### T",
        "",
        "| limiter | per second | CPU µs | p50 µs | p99 µs | faster | calls | WCU | RCU"
        " | $ per million |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| a | 1,234 | 5.2 | 1.0 | 9,999 | 12 | 0.5 | 1 | 0 | 0.625 |",
        "| b | 1,234 | 5.2 | 1.0 | 9,999 | 12 | 0.5 |  |  |  |",
    ]
