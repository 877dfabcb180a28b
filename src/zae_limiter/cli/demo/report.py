"""This module reports the outcome of a demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.limit import MILLI
from ...testing.history import Window
from .check import Verdict, judge_run
from .record import Account, Record
from .scenario import LIMITS, RESOURCE, Job

# Logged times are rounded down to milliseconds at either end of a call. Without an allowance for
# that, a call could seem shorter than it was, and a limit exceeded that was kept.
_ROUNDING_MS = 2
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Report:
    """A report is the record of a run and the verdicts on it."""

    jobs: Sequence[Job]
    record: Record
    seconds: float
    verdicts: dict[Account, Verdict]
    skew_ms: int
    interrupted: bool = False
    failures: Sequence[str] = field(default_factory=tuple)

    @property
    def holds(self) -> bool:
        """Whether every limit of every bucket was kept."""
        return all(verdict.holds for verdict in self.verdicts.values())

    @property
    def exit_code(self) -> int:
        """The exit code: 0 only if the run came to its end, no worker died and every limit was
        kept."""
        if self.interrupted:
            return INTERRUPTED
        return 0 if self.holds and not self.failures else 1

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values."""
        return {
            "holds": self.holds,
            "interrupted": self.interrupted,
            "failures": list(self.failures),
            "seconds": round(self.seconds, 3),
            "skew_ms": self.skew_ms,
            "workers": [self._worker(job) for job in self.jobs],
            "outages": len(self.record.outages),
            "limits": [self._limit(account) for account in self.verdicts],
        }

    def _worker(self, job: Job) -> dict[str, Any]:
        return {
            "worker": job.worker,
            "style": job.style,
            "admitted": self.record.admitted[job.worker],
            "refused": self.record.refused[job.worker],
        }

    def _limit(self, account: Account) -> dict[str, Any]:
        verdict, tally = self.verdicts[account], self.record.tallies[account]
        return {
            "entity_id": account[0],
            "resource": RESOURCE,
            **verdict.limit.to_dict(),
            "admitted": tally.admitted_milli / MILLI,
            "corrected": tally.corrected_milli / MILLI,
            "refused": tally.refused,
            "whole_run": _window(verdict.whole),
            "worst_interval": _window(verdict.worst),
            "holds": verdict.holds,
        }


def _window(window: Window) -> dict[str, float]:
    return {
        "start_ms": window.start_ms,
        "end_ms": window.end_ms,
        "taken": window.taken_milli / MILLI,
        "allowed": float(window.taken_milli - window.excess_milli) / MILLI,
    }


def make_report(
    jobs: Sequence[Job],
    record: Record,
    seconds: float,
    *,
    interrupted: bool = False,
    failures: Sequence[str] = (),
) -> Report:
    """Check the record of a run."""
    skew_ms = record.longest_call_ms + _ROUNDING_MS
    verdicts = {
        (entity_id, limit.name): judge_run(limit, record.movements[entity_id, limit.name], skew_ms)
        for entity_id, limits in LIMITS.items()
        for limit in limits
    }
    return Report(jobs, record, seconds, verdicts, skew_ms, interrupted, failures)
