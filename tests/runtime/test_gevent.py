"""The blocking driver runs among greenlets. Each test has a process of its own to patch."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from tests.support.programs import output_of


def patched(program: str) -> str:
    """Return the program, with every blocking call patched to yield to other greenlets."""
    return "from gevent import monkey; monkey.patch_all()\n" + dedent(program)


def test_gather_among_greenlets_returns_every_outcome_in_order() -> None:
    program = """
        import asyncio, time
        from zae_limiter.runtime.blocking import BlockingIo, run
        from zae_limiter.runtime.parallel import choose_gather, greenlets

        gather = choose_gather("auto", parallel_helps=True)
        assert gather is greenlets is choose_gather("gevent", parallel_helps=True)
        running = most = 0

        async def answer(value):
            global running, most
            running += 1
            most = max(most, running)
            time.sleep(0.01)
            running -= 1
            return value

        async def fail(error):
            time.sleep(0.001)
            raise error

        io = BlockingIo(gather=gather)
        errors = [ValueError("1"), KeyboardInterrupt(), SystemExit(3)]
        assert run(io.gather([answer(0), *map(fail, errors), answer(4)])) == [0, *errors, 4]
        assert run(io.gather([])) == []
        print(most)
    """
    assert output_of(patched(program)) == "2\n"


def test_a_gevent_timeout_waits_for_calls_that_have_begun() -> None:
    program = """
        import gevent, time
        from zae_limiter.runtime.parallel import greenlets

        finished = []

        def slow(number):
            time.sleep(0.05)
            finished.append(number)

        try:
            with gevent.Timeout(0.01):
                greenlets([lambda: slow(1), lambda: slow(2)])
        except gevent.Timeout:
            print("timeout", sorted(finished))
    """
    assert output_of(patched(program)) == "timeout [1, 2]\n"


def test_greenlets_share_a_limiter(tmp_path: Path) -> None:
    program = """
        import sys, gevent
        from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

        repository = SyncRepository.open(url=sys.argv[1], parallel_mode="gevent")
        limiter = SyncRateLimiter(repository, default_limits=[Limit.per_day("rpm", 30)])
        limiter.create_entity("key", parent_id="org", cascade=True)

        def work():
            try:
                with limiter.acquire("key", "gpt-4", {"rpm": 1}):
                    gevent.sleep(0)
                return 1
            except RateLimitExceeded:
                return 0

        workers = [gevent.spawn(work) for _ in range(50)]
        gevent.joinall(workers)
        print(sum(worker.value for worker in workers), limiter.available("key", "gpt-4"))
    """
    for url in ("memory://", f"sqlite:///{tmp_path / 'limits.db'}"):
        assert output_of(patched(program), url) == "30 {'rpm': 0}\n"


def test_a_greenlet_that_times_out_gives_back_what_it_took(tmp_path: Path) -> None:
    program = """
        import sys, gevent
        from zae_limiter import Limit, SyncRateLimiter, SyncRepository

        repository = SyncRepository.open(url=sys.argv[1])
        limiter = SyncRateLimiter(repository, default_limits=[Limit.per_day("rpm", 30)])

        def work():
            with gevent.Timeout(0.02, False):
                with limiter.acquire("key", "gpt-4", {"rpm": 5}):
                    gevent.sleep(60)

        def stopped():
            with limiter.acquire("key", "gpt-4", {"rpm": 5}):
                gevent.sleep(60)

        victim = gevent.spawn(stopped)
        gevent.joinall([gevent.spawn(work) for _ in range(3)])
        victim.kill()
        print(limiter.available("key", "gpt-4"))
    """
    for url in ("memory://", f"sqlite:///{tmp_path / 'limits.db'}"):
        assert output_of(patched(program), url) == "{'rpm': 30}\n"


def test_waiting_greenlets_are_served_in_order_of_arrival() -> None:
    program = """
        import gevent
        from zae_limiter import Limit, SyncRateLimiter
        from zae_limiter.testing import sync_memory_repository

        limits = [Limit("rpm", 1, 100, 1)]
        limiter = SyncRateLimiter(sync_memory_repository(), default_limits=limits)
        served = []

        def work(number):
            with limiter.acquire("key", "gpt-4", {"rpm": 1}, timeout=30):
                served.append(number)

        gevent.joinall([gevent.spawn(work, number) for number in range(8)])
        print(served)
    """
    assert output_of(patched(program)) == "[0, 1, 2, 3, 4, 5, 6, 7]\n"


def test_followers_do_not_notice_that_their_leader_timed_out() -> None:
    program = """
        import gevent, time
        from zae_limiter import Limit, SyncRateLimiter, SyncRepository

        repository = SyncRepository.open(url="memory://")
        limiter = SyncRateLimiter(repository, default_limits=[Limit.per_day("rpm", 1000)])
        buckets = repository.scope.store.buckets
        write = buckets.write

        async def slow(address, planned):
            time.sleep(0.1)
            return await write(address, planned)

        buckets.write = slow

        def take(patience):
            try:
                with gevent.Timeout(patience), limiter.acquire("key", "gpt-4", {"rpm": 1}):
                    return "served"
            except gevent.Timeout:
                return "timeout"

        take(None)
        spawned = [gevent.spawn(take, patience) for patience in (None, 0.15, None, None, None)]
        gevent.joinall(spawned)
        print(*(greenlet.value for greenlet in spawned))
        print(repository.get_bucket("key", "gpt-4", "rpm").total_consumed_milli)
    """
    assert output_of(patched(program)) == "served timeout served served served\n5000\n"
