"""Measures all cases round by round, in an order that alternates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from .crew import MeasurementFailed, measure
from .summary import Row, Sample, rows, sample
from .worker.job import Report
from .workloads.workload import Case, Scale, Workload

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement that is about to be made."""

    workload: Workload
    case: Case
    round: int

    def __str__(self) -> str:
        return f"{self.workload.name}/{self.case.name}, round {self.round + 1}"


@dataclass(frozen=True, slots=True)
class Agenda:
    """A workload, and the cases of it that were asked for."""

    workload: Workload
    cases: Sequence[Case]
    rounds: int

    def steps(self, round_: int) -> Iterator[Step]:
        """The measurements of a round. Every other round goes backward, so that nobody always
        comes first, or after the same neighbour."""
        ordered = self.cases if round_ % 2 == 0 else self.cases[::-1]
        for case in ordered:
            if round_ < min(self.rounds, case.most_rounds or self.rounds):
                yield Step(self.workload, case, round_)


def choose(workloads: Sequence[Workload], only: Sequence[str], scale: Scale) -> list[Agenda]:
    """The cases whose names match one of the patterns: a workload, or `workload/case`."""
    agendas = []
    for workload in workloads:
        cases = [case for case in workload.cases(scale) if _is_wanted(workload, case, only)]
        if cases:
            agendas.append(Agenda(workload, cases, scale.rounds))
    return agendas


def _is_wanted(workload: Workload, case: Case, only: Sequence[str]) -> bool:
    name = f"{workload.name}/{case.name}"
    return not only or any(fnmatchcase(name, p) or fnmatchcase(workload.name, p) for p in only)


def plan(agendas: Sequence[Agenda]) -> list[Step]:
    """All measurements. A workload is done with before the next begins, so that what is
    compared is measured close together."""
    return [
        step
        for agenda in agendas
        for round_ in range(agenda.rounds)
        for step in agenda.steps(round_)
    ]


def run(
    agendas: Sequence[Agenda], watch: Callable[[Sequence[Step]], Iterator[Step]]
) -> list[tuple[Workload, list[Row]]]:
    """Measure everything. `watch` passes the steps on and shows where we are."""
    taken: dict[str, dict[str, tuple[str, list[Sample]]]] = {a.workload.name: {} for a in agendas}
    for step in watch(plan(agendas)):
        reports = _measure(step)
        found = taken[step.workload.name].setdefault(step.case.name, (reports[0].version, []))
        found[1].append(sample(step.case, reports))
    return [(a.workload, rows(a.cases, taken[a.workload.name])) for a in agendas]


def _measure(step: Step) -> list[Report]:
    try:
        return measure(step.case)
    except MeasurementFailed as failure:
        raise MeasurementFailed(f"{step}: {failure}") from failure
