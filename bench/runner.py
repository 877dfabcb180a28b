"""Measures all cases round by round, in an order that alternates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .crew import MeasurementFailed, count, measure
from .servers import counting, serving
from .summary import Row, Taken, counted, rows, sample
from .workloads.workload import Case, Scale, Workload


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement that is about to be made."""

    workload: Workload
    case: Case
    round: int | None
    """None when calls are counted instead."""

    def __str__(self) -> str:
        what = "calls" if self.round is None else f"round {self.round + 1}"
        return f"{self.workload.name}/{self.case.name}, {what}"


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

    def counts(self) -> Iterator[Step]:
        """What calls cost is counted once, where there is a server to be called."""
        return (Step(self.workload, case, None) for case in self.cases if case.subject.store)


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
    steps: list[Step] = []
    for agenda in agendas:
        for round_ in range(agenda.rounds):
            steps.extend(agenda.steps(round_))
        steps.extend(agenda.counts())
    return steps


def run(
    agendas: Sequence[Agenda],
    watch: Callable[[Sequence[Step]], Iterator[Step]],
) -> list[tuple[Workload, list[Row]]]:
    """Measure everything. `watch` passes the steps on and shows where we are."""
    taken: dict[str, dict[str, Taken]] = {a.workload.name: {} for a in agendas}
    for step in watch(plan(agendas)):
        found = taken[step.workload.name].setdefault(step.case.name, Taken())
        try:
            _take(step, found)
        except MeasurementFailed as failure:
            raise MeasurementFailed(f"{step}: {failure}") from failure
    return [(a.workload, rows(a.cases, taken[a.workload.name])) for a in agendas]


def _take(step: Step, found: Taken) -> None:
    case, store = step.case, step.case.subject.store
    if step.round is None:
        with counting(store) as counter:
            found.counted = counted(*count(case, counter))
        return
    with serving(store) as url:
        reports = measure(case, url)
    found.version = reports[0].version
    found.samples.append(sample(case, reports))
