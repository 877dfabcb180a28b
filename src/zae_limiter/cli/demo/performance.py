"""This module runs the demo: the crew works, the audience watches, and the logs are checked."""

from __future__ import annotations

import time

from ...sync_limiter import SyncRateLimiter
from ...sync_repository import SyncRepository
from ..patience import patience
from .audience import Audience, Show
from .crew import Crew, WorkerDied
from .record import Account
from .report import Report, make_report
from .scenario import REQUESTS, RESOURCE, TOKENS
from .view import View

_TICK_S = 0.25


def perform(crew: Crew, repository: SyncRepository, seconds: float, audience: Audience) -> Report:
    """Let the crew work for so many seconds, or until a worker dies or the user interrupts."""
    interrupted = False
    failures: list[str] = []
    began = time.monotonic()
    with crew:
        try:
            with audience.watching(len(crew.jobs), repository.stack_name) as show:
                with patience(f"Starting {len(crew.jobs)} processes"):
                    crew.start()
                began = time.monotonic()
                _work(crew, repository, began, seconds, show)
        except KeyboardInterrupt:
            interrupted = True
        except WorkerDied as error:
            failures.append(str(error))
        elapsed_s = time.monotonic() - began
        failures += [failure for failure in crew.stop() if failure not in failures]
    if not (crew.record.admitted or failures or interrupted):
        failures.append("no call was ever admitted")
    return make_report(
        crew.jobs, crew.record, elapsed_s, interrupted=interrupted, failures=failures
    )


def _work(crew: Crew, repository: SyncRepository, began: float, seconds: float, show: Show) -> None:
    limiter = SyncRateLimiter(repository)
    while True:
        elapsed_s = time.monotonic() - began
        crew.require_alive()
        show(_view(crew, limiter, elapsed_s, seconds))
        if elapsed_s >= seconds:
            return
        time.sleep(min(_TICK_S, seconds - elapsed_s))


def _view(crew: Crew, limiter: SyncRateLimiter, elapsed_s: float, seconds: float) -> View:
    balances = _balances(limiter)
    with crew.lock:
        record = crew.record
        return View(
            elapsed_s,
            seconds,
            sum(record.admitted.values()),
            sum(record.refused.values()),
            dict(record.tallies),
            balances,
        )


def _balances(limiter: SyncRateLimiter) -> dict[Account, int]:
    return {
        (entity.entity_id, name): entity.available
        for name in (REQUESTS, TOKENS)
        for entity in limiter.get_resource_capacity(RESOURCE, name).entities
    }
