"""Signals arrive anywhere in the blocking facade, as Ctrl-C does."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import logging, random, signal, sys, threading, time, warnings
    from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository

    # What was interrupted before it began was never awaited.
    warnings.simplefilter("ignore", RuntimeWarning)
    logging.disable()

    class Interrupt(BaseException):
        pass

    def interrupt(number, frame):
        global armed, raised
        if frame.f_code is unraisable.__code__:
            # What is raised in here would be dropped unseen: this is no place of ours.
            signal.setitimer(signal.ITIMER_REAL, 1e-5)
        elif armed:
            armed = False
            raised += 1
            raise Interrupt

    def unraisable(what):
        # Python itself drops what is raised while it deletes an object.
        global dropped
        if what.exc_type is not Interrupt:
            print("dropped", what, file=sys.stderr)
        dropped += 1

    def acquire(fail):
        with limiter.acquire("key", "gpt-4", {"rpm": 10}) as lease:
            lease.adjust(rpm=1)
            if fail:
                raise ZeroDivisionError

    def busy():
        # A leader that is interrupted is no outage for its followers.
        while not stop.is_set():
            acquire(False)

    random.seed(int(sys.argv[3]))
    signal.signal(signal.SIGALRM, interrupt)
    repository = SyncRepository.open(url=sys.argv[1])
    limiter = SyncRateLimiter(repository, default_limits=[Limit.per_hour("rpm", 10**9)])
    limiter.create_entity("key", parent_id="org", cascade=True)
    start = time.perf_counter()
    for _ in range(50):
        acquire(False)
    longest_s = (time.perf_counter() - start) / 50 * 1.2
    sys.unraisablehook = unraisable
    stop = threading.Event()
    others = [threading.Thread(target=busy, daemon=True) for _ in range(int(sys.argv[4]))]
    for other in others:
        other.start()
    armed, raised, caught, dropped, kept = False, 0, 0, 0, 50
    for attempt in range(int(sys.argv[2])):
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest_s))
            try:
                acquire(attempt % 2)
                kept += 1
            except (ZeroDivisionError, RateLimiterUnavailable):
                pass
            armed = False
        except Interrupt:
            caught += 1
            kept += 1
    stop.set()
    for other in others:
        other.join(timeout=20)
    acquire(False)
    used = [repository.get_bucket(x, "gpt-4", "rpm").total_consumed_milli for x in ("key", "org")]
    print("raised all", raised == caught + dropped, "of many", raised > 20)
    print("all threads ended", not any(other.is_alive() for other in others))
    print("books", bool(others) or all(0 < u <= (kept + 1) * 11_000 for u in used))
"""


@pytest.mark.parametrize(
    ("store", "others"),
    [
        ("memory", 3),
        ("sqlite", 0),
        pytest.param("memory", 0, marks=pytest.mark.slow),
        pytest.param("sqlite", 3, marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_anywhere_is_raised_and_blocks_no_later_caller(
    store: str, others: int, tmp_path: Path
) -> None:
    """Nothing is refunded twice either. Tokens that are being refunded when the interrupt arrives
    may stay charged."""
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), url, "600", "1", str(others)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "raised all True of many True",
        "all threads ended True",
        "books True",
    ]
