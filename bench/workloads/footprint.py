"""What many buckets take of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..subjects import IN_MEMORY
from .workload import Case, Scale, Workload, plain_job


class Footprint:
    """Each entity has been acquired for once, and so has a bucket of two limits."""

    name = "footprint"
    title = "Memory: size of a bucket of 2 limits"

    def cases(self, scale: Scale) -> Sequence[Case]:
        """Counting bytes gives the same in every round, or nearly."""
        return [
            Case(
                subject,
                replace(
                    plain_job(subject, scale),
                    entities=scale.footprint_buckets,
                    measure="footprint",
                ),
                most_rounds=1,
            )
            for subject in IN_MEMORY
        ]


WORKLOADS: Sequence[Workload] = (Footprint(),)
