"""The results as a JSON file."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .summary import Counted, Row, keeps_limits
from .targets import targets
from .workloads.workload import Scale, Workload

FOLDER = Path(__file__).parent / "results"
FORMAT = 2


def default_path(now: datetime) -> Path:
    """Where results go when nobody says where."""
    return FOLDER / f"{now:%Y-%m-%d-%H%M%S}.json"


def machine() -> dict[str, Any]:
    """What the figures depend on. `load`: how busy it was before we began."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def to_json(
    found: Sequence[tuple[Workload, Sequence[Row]]],
    scale: Scale,
    machine: dict[str, Any],
    started: datetime,
) -> dict[str, Any]:
    """Everything that was seen."""
    return {
        "format": FORMAT,
        "started_at": started.astimezone(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "scale": asdict(scale),
        "workloads": [
            {"name": w.name, "title": w.title, "rows": [_row(row) for row in rows]}
            for w, rows in found
        ],
        "targets": [asdict(target) for target in targets(found)],
    }


def _row(row: Row) -> dict[str, Any]:
    subject, job = row.case.subject, row.case.job
    return {
        "name": row.case.name,
        "label": subject.label,
        "point": row.case.point,
        "distribution": subject.distribution,
        "version": row.version,
        "does": {
            "algorithm": subject.algorithm,
            "limits": len(job.quotas),
            "calls": subject.calls,
            "atomic": subject.atomic,
            "refund": subject.refund,
            "processes": row.case.processes,
            "takes": list(job.takes),
            "entities": job.entities,
            "tasks": job.tasks,
            "levels": job.levels,
            "store": subject.store,
        },
        "median": asdict(row.typical),
        "faster": row.faster,
        "leaner": row.leaner,
        "growth": row.growth,
        "keeps_limits": keeps_limits(row),
        "counted": None if row.counted is None else _counted(row.counted),
        "rounds": [asdict(sample) for sample in row.samples],
    }


def _counted(counted: Counted) -> dict[str, Any]:
    """What one acquire costs. The cost of Redis is its calls alone."""
    each = counted.each
    return {
        "acquires": counted.calls,
        "admitted": counted.admitted,
        **asdict(each),
        "dollars_per_million": each.dollars * 1_000_000,
    }


def save(path: Path, results: dict[str, Any]) -> None:
    """Write the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
