from __future__ import annotations

import ast
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from bench.costs import Cost
from bench.runner import Agenda, choose, plan
from bench.subjects import SYNC_MEMORY, THROTTLED
from bench.summary import Row, Sample, Taken, counted, keeps_limits, rows, sample
from bench.worker.job import Job, Quota, Report
from bench.worker.measure import lanes, permilles_us
from bench.workloads import WORKLOADS
from bench.workloads.workload import FULL, NORMAL, QUICK, Case, Scale, plain_job

ROOT = Path(__file__).parents[2]
JOB = replace(
    plain_job(SYNC_MEMORY, QUICK), quotas=(Quota("requests", 100, 1), Quota("tokens", 1000, 10))
)
CASE = Case(SYNC_MEMORY, JOB)
REPORT = Report("1.0", 10, 10, 1000.0, 1002.0, 0.001, tuple(float(us) for us in range(1, 1000)))


def paced(calls_per_s: float, cpu_us: float = 1.0) -> Sample:
    return Sample(calls_per_s, cpu_us, 1.0, 2.0, 10, 0)


def rows_of(cases: list[Case], *samples: list[Sample]) -> list[Row]:
    taken = {c.name: Taken("1.0", found) for c, found in zip(cases, samples, strict=True)}
    return rows(cases, taken)


def test_jobs_and_reports_survive_the_way_to_another_process() -> None:
    assert Job.from_text(JOB.to_text()) == JOB
    assert Report.from_text(REPORT.to_text()) == REPORT


def test_a_sample_adds_up_what_all_processes_did() -> None:
    late = replace(REPORT, began_s=1001.0, ended_s=1004.0, admitted=6, cpu_s=0.003)
    found = sample(CASE, [REPORT, late])
    assert found.calls_per_s == pytest.approx(16 / 4)
    assert found.cpu_us == pytest.approx(4000 / 20)
    assert (found.p50_us, found.p99_us) == (500, 989)
    assert (found.admitted, found.stray) == (16, 4)


def test_a_sample_of_refusals_counts_refusals() -> None:
    found = sample(replace(CASE, expects_refusal=True), [replace(REPORT, admitted=2)])
    assert found.calls_per_s == pytest.approx(4)
    assert found.stray == 2


@pytest.mark.parametrize(
    ("takes", "bound"), [((1, 1), 300), ((3, 1), 100), ((1, 10), 120), ((1, 100), 12)]
)
def test_the_tightest_limit_bounds_what_is_admitted(takes: tuple[int, ...], bound: float) -> None:
    case = replace(CASE, bounded=True, job=replace(JOB, takes=takes))
    assert sample(case, [REPORT]).bound == pytest.approx(bound)


@pytest.mark.parametrize(("admitted", "kept"), [((7, 8), True), ((7, 9), False)])
def test_limits_are_kept_only_if_every_round_kept_them(
    admitted: tuple[int, int], kept: bool
) -> None:
    found = [replace(paced(1), admitted=n, bound=8.0) for n in admitted]
    (row,) = rows_of([replace(CASE, bounded=True)], found)
    assert keeps_limits(row) is kept


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    cases = [CASE, Case(THROTTLED, plain_job(THROTTLED, QUICK))]
    ours, theirs = rows_of(
        cases, [paced(10), paced(20), paced(60)], [paced(20), paced(10), paced(20)]
    )
    assert ours.faster is None
    assert theirs.faster == pytest.approx(2)
    assert theirs.typical.calls_per_s == 20


def test_a_limiter_that_takes_less_cpu_time_is_leaner() -> None:
    cases = [CASE, Case(THROTTLED, plain_job(THROTTLED, QUICK))]
    _, theirs = rows_of(cases, [paced(1, 10), paced(1, 10)], [paced(1, 30), paced(1, 50)])
    assert theirs.leaner == pytest.approx(4)


def test_a_limiter_that_takes_less_memory_is_leaner() -> None:
    cases = [CASE, Case(THROTTLED, plain_job(THROTTLED, QUICK))]
    sizes = [[replace(paced(0), footprint_bytes=size)] for size in (200.0, 100.0)]
    assert rows_of(cases, *sizes)[1].leaner == pytest.approx(0.5)
    assert rows_of(cases, *sizes)[1].faster is None


def test_without_ours_there_is_nothing_to_compare_with() -> None:
    (row,) = rows_of([Case(THROTTLED, plain_job(THROTTLED, QUICK))], [paced(10)])
    assert (row.faster, row.leaner) == (None, None)


def test_growth_is_counted_from_the_first_point() -> None:
    cases = [replace(CASE, point=point) for point in ("1 limit", "6 limits")]
    first, last = rows_of(cases, [paced(1, 10), paced(1, 20)], [paced(1, 30), paced(1, 40)])
    assert first.growth is None
    assert last.growth == pytest.approx(2.5)


def test_rounds_alternate_their_order() -> None:
    cases = [CASE, replace(CASE, point="b"), replace(CASE, point="c", most_rounds=1)]
    steps = plan([Agenda(WORKLOADS[0], cases, 3)])
    assert [step.case.point for step in steps] == ["", "b", "c", "b", "", "", "b"]


def test_only_picks_workloads_and_cases() -> None:
    def names(*only: str) -> list[str]:
        return [
            f"{a.workload.name}/{c.name}" for a in choose(WORKLOADS, only, QUICK) for c in a.cases
        ]

    assert names("sqlite/zae-limiter-*") == [
        "sqlite/zae-limiter-sync",
        "sqlite/zae-limiter-async",
    ]
    assert {name.split("/")[0] for name in names("refusals-*")} == {
        "refusals-memory",
        "refusals-sqlite",
    }
    assert names("nothing") == []
    assert len(names()) == len({*names()}) > 40


@pytest.mark.parametrize("scale", [QUICK, NORMAL, FULL])
def test_ours_comes_first_at_every_point(scale: Scale) -> None:
    for agenda in choose(WORKLOADS, (), scale):
        first = {case.point: case.subject for case in reversed(agenda.cases)}
        assert not any(subject.is_peer for subject in first.values())


@pytest.mark.parametrize(("apart", "visited"), [(True, ["entity-0"] * 3), (False, ["entity-0"])])
def test_tasks_have_an_entity_of_their_own_or_share_the_visits(
    apart: bool, visited: list[str]
) -> None:
    job = replace(JOB, tasks=2, entities=1 + apart, apart=apart)
    first, last = (list(islice(lane, 3)) for lane in lanes(job, 6 if apart else 1))
    assert first == visited
    assert last == (["entity-1"] * 3 if apart else [])


def test_an_entity_has_as_many_ancestors_as_there_are_levels_above() -> None:
    assert replace(JOB, levels=1).ancestry("a") == ["a"]
    assert replace(JOB, levels=3).ancestry("a") == ["a", "a-level-2", "a-level-3"]


def test_where_some_are_refused_as_they_should_be_every_call_counts() -> None:
    found = sample(replace(CASE, mixed=True), [replace(REPORT, admitted=1)])
    assert found.calls_per_s == pytest.approx(5)
    assert (found.admitted, found.stray) == (1, 0)


def test_counted_costs_are_divided_by_all_acquires() -> None:
    found = counted(Cost(4, wcu=2, rcu=1, refused=3), [REPORT, REPORT])
    assert found.each == Cost(0.2, 0.1, 0.05, 0.15)
    assert found.each.dollars * 1e6 == pytest.approx(0.25 * 0.625 + 0.05 * 0.125)


def test_only_cases_that_call_a_server_have_a_counted_round() -> None:
    agendas = choose(WORKLOADS, ("memory/*-sync", "shared-one-key/zae-limiter"), QUICK)
    steps = [(step.workload.name, step.round) for step in plan(agendas)]
    assert steps == [("memory", 0), ("shared-one-key", 0), ("shared-one-key", None)]


@pytest.mark.parametrize("agenda", choose(WORKLOADS, (), QUICK), ids=lambda a: a.workload.name)
def test_every_adapter_is_there(agenda: Agenda) -> None:
    """Those of others cannot be imported here, so their files are read."""
    for case in agenda.cases:
        module, name = case.job.adapter.split(":")
        text = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        classes = [n.name for n in ast.parse(text).body if isinstance(n, ast.ClassDef)]
        assert name in classes


def test_permilles_are_ordered_and_within_what_was_seen() -> None:
    found = permilles_us([*range(1000, 0, -1)])
    assert found == tuple(share / 1000 for share in range(1, 1000))
    assert set(permilles_us([7000])) == {7.0}
