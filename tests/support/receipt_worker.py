"""One process of several that work off the same jobs, or end the same tokens.

python -m tests.support.receipt_worker URL BOOK jobs|tokens SEED < LINES

The process says `ready` and reads the standard input. Each line of it is a job or a token. The
process works them off in an order of its own, and writes a line to its book for each that it was
told to be done.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys

from zae_limiter import (
    Lease,
    LeaseExpiredError,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
)

ENTITY, RESOURCE, AMOUNT = "key-1", "gpt-4", 3


class Book:
    """A book has a line for each thing that was done; what is in it survives a kill."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, about: str) -> None:
        os.write(self._file, (json.dumps([what, about]) + "\n").encode())


async def work_off(limiter: RateLimiter, job: str, book: Book) -> None:
    """Reserve, work for a moment, and commit."""
    lease = await limiter.reserve(ENTITY, RESOURCE, {"rpm": AMOUNT}, idempotency_key=job)
    book.note("repeat" if lease.is_repeat else "charged", job)
    await asyncio.sleep(0.002)
    await lease.commit()
    book.note("committed", job)


def work_off_blocking(limiter: SyncRateLimiter, job: str, book: Book) -> None:
    lease = limiter.reserve(ENTITY, RESOURCE, {"rpm": AMOUNT}, idempotency_key=job)
    book.note("repeat" if lease.is_repeat else "charged", job)
    lease.commit()
    book.note("committed", job)


async def end(limiter: RateLimiter, token: str, book: Book) -> None:
    lease = await Lease.from_token(limiter, token)
    await lease.release()
    book.note("released", token)


def end_blocking(limiter: SyncRateLimiter, token: str, book: Book) -> None:
    SyncLease.from_token(limiter, token).commit(rpm=1)
    book.note("committed", token)


def read_lines(seed: int) -> list[str]:
    print("ready", flush=True)
    lines = sys.stdin.read().split()
    random.Random(seed).shuffle(lines)
    return lines


async def run(url: str, book: Book, role: str, seed: int) -> None:
    async with await Repository.open(url=url) as repository:
        limiter = RateLimiter(repository)
        for line in read_lines(seed):
            try:
                await (work_off if role == "jobs" else end)(limiter, line, book)
            except LeaseExpiredError:
                book.note("too late", line)
            except RateLimiterUnavailable:
                book.note("unavailable", line)


def run_blocking(url: str, book: Book, role: str, seed: int) -> None:
    with SyncRepository.open(url=url) as repository:
        limiter = SyncRateLimiter(repository)
        for line in read_lines(seed):
            try:
                (work_off_blocking if role == "jobs" else end_blocking)(limiter, line, book)
            except LeaseExpiredError:
                book.note("too late", line)
            except RateLimiterUnavailable:
                book.note("unavailable", line)


def main() -> None:
    url, path, role, number = sys.argv[1:]
    book, seed = Book(path), int(number)
    if seed % 2:
        asyncio.run(run(url, book, role, seed))
    else:
        run_blocking(url, book, role, seed)


if __name__ == "__main__":
    main()
