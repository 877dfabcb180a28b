"""All workloads, in the order of the table."""

from __future__ import annotations

from collections.abc import Sequence

from . import footprint, growth, one_process, processes, refusals, tasks
from .workload import Workload

WORKLOADS: Sequence[Workload] = (
    *one_process.WORKLOADS,
    *processes.WORKLOADS,
    *tasks.WORKLOADS,
    *refusals.WORKLOADS,
    *footprint.WORKLOADS,
    *growth.WORKLOADS,
)
