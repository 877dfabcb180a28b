"""Real processes with the same keys and tokens, some of them killed: charged once, ended once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.drivers import SHARED, StoreKind
from tests.support.programs import output_of
from tests.support.receipt_worker import AMOUNT, ENTITY, RESOURCE
from tests.support.servers.chaos import ChaosProxy, DropAnswer, Pass, Reset, seeded
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, SyncLease, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.url import dynamodb_url

pytestmark = pytest.mark.slow

# Nothing to speak of comes back while a test runs.
LIMIT = Limit("rpm", 1_000_003, 1, 30_000_000)
JOBS = [f"job-{number}" for number in range(30)]
PATIENCE_S = 120


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that processes share."""
    kind: StoreKind = request.param
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/limits.db"
    table: OwnTable = request.getfixturevalue("table")
    return table.url


@pytest.fixture
def limiter(url: str) -> Iterator[SyncRateLimiter]:
    """A limiter whose key has an organisation above it."""
    with SyncRepository.open(url=url) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([LIMIT])
        limiter.create_entity("org")
        limiter.create_entity(ENTITY, parent_id="org", cascade=True)
        yield limiter


def start(
    url: str, folder: Path, role: str, seeds: Iterable[int], lines: list[str]
) -> list[subprocess.Popen[bytes]]:
    """Start a process for each seed. They begin when all are there."""
    command = [sys.executable, "-m", "tests.support.receipt_worker", url]
    processes = [
        subprocess.Popen(
            [*command, str(folder / f"book-{seed}"), role, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for seed in seeds
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdout.close()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n".join(lines).encode())
        process.stdin.close()
    return processes


def finish(processes: list[subprocess.Popen[bytes]]) -> None:
    try:
        assert [process.wait(PATIENCE_S) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def read_books(folder: Path) -> Counter[tuple[str, str]]:
    """Count what was told to be done, by what it was about."""
    found: Counter[tuple[str, str]] = Counter()
    for path in folder.glob("book-*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                what, about = json.loads(line)
                found[what, about] += 1
    return found


def used_by(limiter: SyncRateLimiter, entity_id: str) -> int:
    """Return the tokens that one level has used."""
    states = limiter.repository.get_buckets(entity_id, RESOURCE)
    (state,) = [state for state in states if state.limit_name == "rpm"]
    return (state.total_consumed_milli or 0) // 1000


def used(limiter: SyncRateLimiter) -> int:
    """Return the tokens that both levels have used, which are as many."""
    own, above = (used_by(limiter, entity_id) for entity_id in (ENTITY, "org"))
    assert own == above
    return own


def kill_when_busy(process: subprocess.Popen[bytes], book: Path, lines: int) -> None:
    """Kill a process with SIGKILL as soon as it has done something."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if book.exists() and book.read_bytes().count(b"\n") >= lines:
            break
        time.sleep(0.001)
    process.kill()
    process.wait()


def test_processes_with_the_same_keys_charge_each_once(
    url: str, limiter: SyncRateLimiter, tmp_path: Path
) -> None:
    finish(start(url, tmp_path, "jobs", range(4), JOBS))
    told = read_books(tmp_path)
    for job in JOBS:
        assert told["charged", job] == 1
        assert told["repeat", job] == 3
        assert told["committed", job] == 4
    assert used(limiter) == AMOUNT * len(JOBS)


def test_processes_that_are_killed_and_start_again_charge_each_key_once(
    url: str, limiter: SyncRateLimiter, tmp_path: Path
) -> None:
    for seed in range(5):
        # An odd number of lines: most are killed between reserve and commit.
        (process,) = start(url, tmp_path, "jobs", [seed], JOBS)
        kill_when_busy(process, tmp_path / f"book-{seed}", 7 + 6 * seed)
    finish(start(url, tmp_path, "jobs", (10, 11), JOBS))
    told = read_books(tmp_path)
    assert max(told["charged", job] for job in JOBS) == 1
    assert used(limiter) == AMOUNT * len(JOBS)


def test_processes_that_end_the_same_tokens_end_each_once(
    url: str, limiter: SyncRateLimiter, tmp_path: Path
) -> None:
    tokens = [
        limiter.reserve(ENTITY, RESOURCE, {"rpm": AMOUNT}, lease_ttl=600).token() for _ in range(24)
    ]
    assert used(limiter) == AMOUNT * len(tokens)
    finish(start(url, tmp_path, "tokens", range(4), tokens))
    told = read_books(tmp_path)
    for token in tokens:
        assert told["released", token] + told["committed", token] == 1
        assert told["too late", token] == 3
    committed = sum(told["committed", token] for token in tokens)
    assert used(limiter) == committed


def test_processes_that_are_killed_while_they_end_tokens_give_nothing_back_twice(
    url: str, limiter: SyncRateLimiter, tmp_path: Path
) -> None:
    tokens = [
        limiter.reserve(ENTITY, RESOURCE, {"rpm": AMOUNT}, lease_ttl=600).token() for _ in range(24)
    ]
    for seed in range(4):
        (process,) = start(url, tmp_path, "tokens", [seed], tokens)
        kill_when_busy(process, tmp_path / f"book-{seed}", 6)
    finish(start(url, tmp_path, "tokens", (10, 11), tokens))
    told = read_books(tmp_path)
    ended = {token: told["released", token] + told["committed", token] for token in tokens}
    assert max(ended.values()) == 1
    in_doubt = list(ended.values()).count(0)
    assert in_doubt <= 4, "one for each process that was killed"
    committed = sum(told["committed", token] for token in tokens)
    for level in (ENTITY, "org"):
        # A kill between two corrections leaves the charge as it was at one level only.
        assert committed <= used_by(limiter, level) <= committed + AMOUNT * in_doubt


WRONG_CLOCK = """
import logging, sys, time
logging.disable()
url, before_s, after_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
right, right_ns, ahead_s = time.time, time.time_ns, before_s
time.time = lambda: right() + ahead_s
time.time_ns = lambda: right_ns() + int(ahead_s * 1e9)
from zae_limiter import SyncRateLimiter, SyncRepository
with SyncRepository.open(url=url) as repository:
    limiter = SyncRateLimiter(repository)
    for ahead_s in (before_s, after_s, after_s):
        lease = limiter.reserve("key-1", "gpt-4", {"rpm": 3}, idempotency_key="k")
        assert lease.is_repeat
        lease.commit()
    print(limiter.reserve("key-1", "gpt-4", {"rpm": 3}, lease_ttl=600).token())
"""


@pytest.mark.parametrize("url", ["dynamodb"], indirect=True)
@pytest.mark.parametrize("step_s", [31_622_400, -31_622_400])
@pytest.mark.parametrize("starts_wrong", [True, False], ids=["from the start", "while it runs"])
def test_a_process_with_a_wrong_clock_charges_no_key_twice_and_its_token_is_good(
    url: str, limiter: SyncRateLimiter, step_s: int, starts_wrong: bool
) -> None:
    limiter.reserve(ENTITY, RESOURCE, {"rpm": AMOUNT}, idempotency_key="k").commit()
    told = output_of(WRONG_CLOCK, url, str(step_s if starts_wrong else 0), str(step_s))
    SyncLease.from_token(limiter, told.strip()).release()
    assert used(limiter) == AMOUNT


def test_processes_behind_a_bad_line_charge_each_key_once(table: OwnTable, tmp_path: Path) -> None:
    with (
        ChaosProxy(table.server.url, seeded(7, [DropAnswer(), Reset(), Pass()], 0.2)) as proxy,
        SyncRepository.open(url=table.url) as repository,
    ):
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([LIMIT])
        limiter.create_entity(ENTITY, parent_id="org", cascade=True)
        bad = dynamodb_url(table.name, table.server.region, proxy.url)
        finish(start(bad, tmp_path, "jobs", range(3), JOBS))
        finish(start(table.url, tmp_path, "jobs", [10], JOBS))
        told = read_books(tmp_path)
        assert max(told["charged", job] for job in JOBS) == 1
        assert used(limiter) == AMOUNT * len(JOBS)
