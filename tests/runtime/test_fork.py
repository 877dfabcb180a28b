"""A process that forks goes on in parent and child."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import output_of


def test_the_child_of_a_fork_makes_ids_of_its_own() -> None:
    program = """
        import os
        from zae_limiter.runtime.ids import unique_suffix

        unique_suffix()
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, unique_suffix().encode())
            os._exit(0)
        os.wait()
        theirs, ours = os.read(read, 100).decode(), unique_suffix()
        print(theirs != ours, theirs[:6] != ours[:6])
    """
    assert output_of(program) == "True True\n"


def test_the_child_of_a_fork_has_threads_of_its_own() -> None:
    program = """
        import os
        from zae_limiter.runtime.parallel import Threads

        gather = Threads()
        calls = [lambda: 1, lambda: 2, lambda: 3]
        assert gather(calls) == [1, 2, 3]
        child = os.fork()
        answer = gather(calls)
        if child == 0:
            os._exit(0 if answer == [1, 2, 3] else 1)
        print(os.waitpid(child, 0)[1], answer)
    """
    assert output_of(program) == "0 [1, 2, 3]\n"


@pytest.mark.parametrize("mode", ["serial", "threadpool"])
def test_parent_and_child_of_a_fork_share_one_store(mode: str, tmp_path: Path) -> None:
    program = """
        import os, sys
        from zae_limiter import Limit, SyncRateLimiter, SyncRepository

        repository = SyncRepository.open(url=sys.argv[1], parallel_mode=sys.argv[2])
        limiter = SyncRateLimiter(repository, default_limits=[Limit.per_day("rpm", 1000)])
        limiter.create_entity("key", parent_id="org", cascade=True)

        def use(times):
            for _ in range(times):
                with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
                    lease.adjust(rpm=1)

        use(10)
        children = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                use(50)
                os._exit(0)
            children.append(child)
        use(50)
        print([os.waitpid(child, 0)[1] for child in children], limiter.available("key", "gpt-4"))
    """
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    assert output_of(program, url, mode) == "[0, 0, 0] {'rpm': 580}\n"


def test_the_child_of_a_fork_may_run_an_event_loop_of_its_own(tmp_path: Path) -> None:
    program = """
        import asyncio, os, sys
        from zae_limiter import Limit, RateLimiter, Repository

        async def start():
            return await Repository.open(url=sys.argv[1])

        async def use(repository):
            limiter = RateLimiter(repository, default_limits=[Limit.per_day("rpm", 1000)])
            for _ in range(50):
                async with limiter.acquire("key", "gpt-4", {"rpm": 1}):
                    pass
            return await limiter.available("key", "gpt-4")

        repository = asyncio.run(start())
        asyncio.run(use(repository))
        child = os.fork()
        if child == 0:
            asyncio.run(use(repository))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(status, asyncio.run(use(repository)))
    """
    assert output_of(program, f"sqlite:///{tmp_path / 'limits.db'}") == "0 {'rpm': 850}\n"


def test_a_child_counts_calls_although_a_thread_of_its_parent_was_counting() -> None:
    program = """
        import os, signal, threading
        from zae_limiter.backends.dynamodb.wire.meter import Meter
        from zae_limiter.local.call_times import CallTimes
        import zae_limiter.runtime.ids

        meter, times = Meter(), CallTimes()
        held, forked = threading.Event(), threading.Event()

        def count():
            with meter._lock, times._lock:
                held.set()
                forked.wait()

        thread = threading.Thread(target=count)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            meter.count_seconds("GetItem", 1.0)
            times.note("read", 1.0)
            os._exit(0)
        forked.set()
        thread.join()
        print(os.waitpid(child, 0)[1])
    """
    assert output_of(program) == "0\n"
