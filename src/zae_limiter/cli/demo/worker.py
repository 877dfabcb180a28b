"""A worker is one process of the demo: several callers that share one limiter.

The worker says that it is ready, waits for a byte on its standard input, works until that input
ends, finishes the calls that it has begun, and writes its log on its standard output.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

from ...core.exceptions import RateLimiterUnavailable
from ...core.limit import MILLI
from ...core.rate_limit_exceeded import RateLimitExceeded
from ...limiter import RateLimiter
from ...repository import Repository
from ...sync_limiter import SyncRateLimiter
from ...sync_repository import SyncRepository
from .log import Log, now_ms
from .scenario import RESOURCE, TOKENS, Errand, Job, next_errand

_STDIN = 0


class ErrandFailed(Exception):
    """This error stands for a failure in the body of a call."""


def main(job: Job, log: Log) -> None:
    """Run a worker process to its end."""
    if job.style == "threads":
        _threads(job, log)
    else:
        asyncio.run(_tasks(job, log))


def _start_signal(log: Log) -> threading.Event:
    """Wait for the start, and return an event that is set at the end."""
    log.ready()
    ending = threading.Event()
    if not os.read(_STDIN, 1):
        ending.set()
    threading.Thread(target=_wait_for_end, args=(ending,), daemon=True).start()
    return ending


def _wait_for_end(ending: threading.Event) -> None:
    while os.read(_STDIN, 1):
        pass
    ending.set()


async def _tasks(job: Job, log: Log) -> None:
    repository = await Repository.connect(job.namespace, url=job.url)
    async with RateLimiter(repository) as limiter, asyncio.TaskGroup() as group:
        ending = _start_signal(log)
        for caller in range(job.callers):
            random = Random(f"{job.worker}.{caller}")
            group.create_task(_call_on(limiter, job, log, ending, random))


async def _call_on(
    limiter: RateLimiter, job: Job, log: Log, ending: threading.Event, random: Random
) -> None:
    while not ending.is_set():
        try:
            await _call(limiter, next_errand(random), log)
        except RateLimitExceeded as error:
            log.refused(error)
        except RateLimiterUnavailable as error:
            log.unavailable(error)
        await asyncio.sleep(random.uniform(0.5, 1.5) * job.pause_s)


async def _call(limiter: RateLimiter, errand: Errand, log: Log) -> None:
    began_ms = now_ms()
    number = 0
    try:
        async with limiter.acquire(errand.entity_id, RESOURCE, errand.takes) as lease:
            log.admitted(began_ms, lease.entries)
            await asyncio.sleep(errand.seconds)
            if errand.fails:
                number = log.refunding(lease.entries)
                raise ErrandFailed
            await lease.adjust(**{TOKENS: errand.correction})
            number = log.adjusting(lease.entries, {TOKENS: errand.correction * MILLI})
    except ErrandFailed:
        pass
    finally:
        if number:
            log.corrected(number)


def _threads(job: Job, log: Log) -> None:
    repository = SyncRepository.connect(job.namespace, url=job.url)
    with SyncRateLimiter(repository) as limiter, ThreadPoolExecutor(job.callers) as pool:
        ending = _start_signal(log)
        callers = [
            pool.submit(_sync_call_on, limiter, job, log, ending, Random(f"{job.worker}.{caller}"))
            for caller in range(job.callers)
        ]
        for caller in callers:
            caller.result()


def _sync_call_on(
    limiter: SyncRateLimiter, job: Job, log: Log, ending: threading.Event, random: Random
) -> None:
    while not ending.is_set():
        try:
            _sync_call(limiter, next_errand(random), log)
        except RateLimitExceeded as error:
            log.refused(error)
        except RateLimiterUnavailable as error:
            log.unavailable(error)
        time.sleep(random.uniform(0.5, 1.5) * job.pause_s)


def _sync_call(limiter: SyncRateLimiter, errand: Errand, log: Log) -> None:
    began_ms = now_ms()
    number = 0
    try:
        with limiter.acquire(errand.entity_id, RESOURCE, errand.takes) as lease:
            log.admitted(began_ms, lease.entries)
            time.sleep(errand.seconds)
            if errand.fails:
                number = log.refunding(lease.entries)
                raise ErrandFailed
            lease.adjust(**{TOKENS: errand.correction})
            number = log.adjusting(lease.entries, {TOKENS: errand.correction * MILLI})
    except ErrandFailed:
        pass
    finally:
        if number:
            log.corrected(number)


if __name__ == "__main__":
    main(Job.from_text(sys.argv[1]), Log(sys.stdout))
