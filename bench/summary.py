"""From what processes reported to the figures of a row. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from .costs import Cost
from .worker.job import Report
from .workloads.workload import Case


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one case, over all of its processes.

    `calls_per_s` counts calls with the outcome that was expected. `stray` are the others.
    `bound`: what limits that bind allow in the time that passed.
    """

    calls_per_s: float
    cpu_us: float
    p50_us: float
    p99_us: float
    admitted: int
    stray: int
    bound: float | None = None
    footprint_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """What acquires asked of a server, counted in a measurement of its own."""

    total: Cost
    calls: int
    admitted: int
    elapsed_s: float

    @property
    def each(self) -> Cost:
        """Of one acquire."""
        return self.total.each(self.calls)


@dataclass(slots=True)
class Taken:
    """What was seen of a case: a sample for each round."""

    version: str = ""
    samples: list[Sample] = field(default_factory=list)
    counted: Counted | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A case over all rounds: medians.

    `faster`: how many times as many calls per second the first of its point made.
    `leaner`: how many times less CPU time, or memory, it took for each.
    `growth`: by which factor the CPU time of a call has grown since the first point.
    """

    case: Case
    version: str
    samples: Sequence[Sample]
    typical: Sample
    faster: float | None
    leaner: float | None
    growth: float | None
    counted: Counted | None = None


def counted(total: Cost, reports: Sequence[Report]) -> Counted:
    """What was counted while the processes of a measurement were at work."""
    return Counted(
        total,
        sum(report.calls for report in reports),
        sum(report.admitted for report in reports),
        _elapsed_s(reports),
    )


def sample(case: Case, reports: Sequence[Report]) -> Sample:
    """What the processes of one measurement did together."""
    calls = sum(report.calls for report in reports)
    admitted = sum(report.admitted for report in reports)
    if case.job.measure == "footprint":
        return Sample(0, 0, 0, 0, admitted, calls - admitted, None, _per_entity(case, reports))
    elapsed_s = _elapsed_s(reports)
    wanted = calls if case.mixed else calls - admitted if case.expects_refusal else admitted
    latencies_us = sorted(us for report in reports for us in report.permilles_us)
    return Sample(
        wanted / elapsed_s,
        sum(report.cpu_s for report in reports) * 1e6 / calls,
        _share(latencies_us, 0.50),
        _share(latencies_us, 0.99),
        admitted,
        0 if case.bounded else calls - wanted,
        _bound(case, elapsed_s) if case.bounded else None,
    )


def _elapsed_s(reports: Sequence[Report]) -> float:
    return max(r.ended_s for r in reports) - min(r.began_s for r in reports)


def _per_entity(case: Case, reports: Sequence[Report]) -> float:
    return sum(report.footprint_bytes for report in reports) / case.job.entities


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[int((len(ordered) - 1) * share)]


def _bound(case: Case, elapsed_s: float) -> float:
    """What the tightest limit lets pass: its capacity, and what it gains in the time."""
    return min(
        (quota.capacity + quota.capacity * elapsed_s / quota.period_s) / amount
        for quota, amount in zip(case.job.quotas, case.job.takes, strict=True)
    )


ByCase = Mapping[str, Taken]


def rows(cases: Sequence[Case], taken: ByCase) -> list[Row]:
    """The rows of a workload."""
    return [_row(case, cases, taken) for case in cases]


def _row(case: Case, cases: Sequence[Case], taken: ByCase) -> Row:
    own = taken[case.name]
    ours = next(other for other in cases if other.point == case.point)
    first = next(other for other in cases if other.subject == case.subject)
    return Row(
        case,
        own.version,
        own.samples,
        _typical(own.samples),
        _compare(_faster, ours, case, taken),
        _compare(_leaner, ours, case, taken),
        None if case is first else _growth(taken[first.name].samples, own.samples),
        own.counted,
    )


def _compare(
    ratio: Callable[[Sample, Sample], float | None], ours: Case, case: Case, taken: ByCase
) -> float | None:
    """The median of the rounds' ratios: what disturbs a round disturbs both sides of it."""
    if ours.subject.is_peer or ours is case or case.bounded:
        return None
    pairs = zip(taken[ours.name].samples, taken[case.name].samples, strict=False)
    found = [r for r in (ratio(*pair) for pair in pairs) if r is not None]
    return median(found) if found else None


def _faster(ours: Sample, theirs: Sample) -> float | None:
    return ours.calls_per_s / theirs.calls_per_s if theirs.calls_per_s else None


def _leaner(ours: Sample, theirs: Sample) -> float:
    if ours.footprint_bytes is not None and theirs.footprint_bytes is not None:
        return theirs.footprint_bytes / ours.footprint_bytes
    return theirs.cpu_us / ours.cpu_us


def _typical(samples: Sequence[Sample]) -> Sample:
    bounds = [s.bound for s in samples if s.bound is not None]
    footprints = [s.footprint_bytes for s in samples if s.footprint_bytes is not None]
    return Sample(
        median(s.calls_per_s for s in samples),
        median(s.cpu_us for s in samples),
        median(s.p50_us for s in samples),
        median(s.p99_us for s in samples),
        round(median(s.admitted for s in samples)),
        max(s.stray for s in samples),
        median(bounds) if bounds else None,
        median(footprints) if footprints else None,
    )


def _growth(first: Sequence[Sample], samples: Sequence[Sample]) -> float:
    return median(now.cpu_us / then.cpu_us for then, now in zip(first, samples, strict=False))


def keeps_limits(row: Row) -> bool | None:
    """Whether in every round no more was admitted than the limits allow. None: they do not bind."""
    kept = [s.admitted <= s.bound for s in row.samples if s.bound is not None]
    return all(kept) if kept else None
