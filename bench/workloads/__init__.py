"""All workloads, in the order of the table."""

from __future__ import annotations

from collections.abc import Sequence

from . import configs, footprint, growth, one_process, processes, refusals, shared, tasks
from .workload import Workload

WORKLOADS: Sequence[Workload] = (
    *one_process.WORKLOADS,
    *processes.WORKLOADS,
    *tasks.WORKLOADS,
    *refusals.WORKLOADS,
    *footprint.WORKLOADS,
    *growth.WORKLOADS,
    *shared.WORKLOADS,
    *configs.WORKLOADS,
    shared.LAST,
)
