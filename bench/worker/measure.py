"""The stages of a measurement: set up, say so, wait to be started, measure."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from itertools import cycle, islice

from .adapter import Adapter, Lanes, Tape
from .job import Job, Report

_DRAWN = 200_000
_SEED = 1


def open_adapter(job: Job) -> Adapter:
    """The limiter that the job names."""
    module, name = job.adapter.split(":")
    adapter: Adapter = getattr(import_module(module), name)(job)
    return adapter


def measure(job: Job, wait_for_start: Callable[[], None]) -> Report:
    """Do the job."""
    if job.drained:
        _drain(job)
    adapter = open_adapter(job)
    try:
        return _MEASURES[job.measure](adapter, job, wait_for_start)
    finally:
        adapter.close()


def _drain(job: Job) -> None:
    """Take all there is. Whoever is measured then does not know of it."""
    everything = tuple(quota.capacity for quota in job.quotas)
    adapter = open_adapter(replace(job, takes=everything))
    adapter.run([map(_entity, range(job.entities - job.drained, job.entities))])
    adapter.close()


def _pace(adapter: Adapter, job: Job, wait_for_start: Callable[[], None]) -> Report:
    if job.populate:
        adapter.run([_every(job)])
    adapter.run(lanes(job, job.warmup))
    gc.collect()
    wait_for_start()
    return _report(adapter.run(lanes(job, job.calls), job.seconds), job)


def _report(tape: Tape, job: Job) -> Report:
    return Report(
        version(job.distribution),
        len(tape.latencies_ns),
        tape.admitted,
        tape.began_s,
        tape.ended_s,
        tape.cpu_s,
        permilles_us(tape.latencies_ns),
    )


def _footprint(adapter: Adapter, job: Job, wait_for_start: Callable[[], None]) -> Report:
    """What one acquire of each entity leaves in memory."""
    adapter.run([["somebody-else"]])
    wait_for_start()
    tracemalloc.start()
    admitted = adapter.run([_every(job)]).admitted
    gc.collect()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Report(version(job.distribution), job.entities, admitted, footprint_bytes=held_bytes)


_MEASURES = {"pace": _pace, "footprint": _footprint}


def _every(job: Job) -> Iterator[str]:
    return map(_entity, range(job.entities))


def lanes(job: Job, calls: int | None) -> Lanes:
    """What each task does of so many calls, or of any number."""
    if job.apart:
        each = None if calls is None else calls // job.tasks
        return [islice(cycle([_entity(task)]), each) for task in range(job.tasks)]
    return [islice(_visits(job), calls)] * job.tasks


def _visits(job: Job) -> Iterator[str]:
    """Entities without end, at random but the same in every run."""
    if job.entities == 1:
        return cycle([_entity(0)])
    drawn = random.Random(_SEED).choices(range(job.entities), k=_DRAWN)
    return cycle([_entity(number) for number in drawn])


def _entity(number: int) -> str:
    return f"entity-{number}"


def permilles_us(latencies_ns: Sequence[int]) -> tuple[float, ...]:
    """The latencies that 1, 2, ... 999 of a thousand calls did not exceed."""
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1
    return tuple(ordered[last * share // 1000] / 1000 for share in range(1, 1000))
