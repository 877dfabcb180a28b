"""Four worker processes take jobs from one queue and share one limit.

python workers.py
"""

import os
from multiprocessing import get_context
from multiprocessing.queues import Queue
from queue import Empty

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

URL = os.environ.get("ZAEL_URL", "sqlite:///limits.db")
JOBS, ALLOWED = 40, 25


def work(jobs: "Queue[int]", done: "Queue[tuple[int, bool]]") -> None:
    with SyncRateLimiter(repository=SyncRepository.open(url=URL)) as limiter:
        while True:
            try:
                job = jobs.get(timeout=1)
            except Empty:
                return
            try:
                with limiter.acquire("nightly", "jobs", {"runs": 1}):
                    done.put((job, True))
            except RateLimitExceeded:
                done.put((job, False))


def main() -> None:
    with SyncRateLimiter(repository=SyncRepository.open(url=URL)) as limiter:
        limiter.set_resource_defaults("jobs", [Limit.per_day("runs", ALLOWED)])
        limiter.delete_entity("nightly")  # so that each run of this example starts full
        limiter.create_entity("nightly", exist_ok=True)

    context = get_context("spawn")
    jobs, done = context.Queue(), context.Queue()
    for job in range(JOBS):
        jobs.put(job)
    workers = [context.Process(target=work, args=(jobs, done)) for _ in range(4)]
    for worker in workers:
        worker.start()
    outcomes = [done.get() for _ in range(JOBS)]
    for worker in workers:
        worker.join()
    admitted = sum(was_admitted for _, was_admitted in outcomes)
    print(f"{admitted} of {JOBS} jobs admitted, {ALLOWED} allowed")


if __name__ == "__main__":
    main()
