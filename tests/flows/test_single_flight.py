"""Tasks and threads that make equal calls at the same time share one call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

from tests.support.crowd import Gate, in_thread, until
from tests.support.drivers import Driver
from zae_limiter.local import single_flight as single_flight_module
from zae_limiter.local.single_flight import SingleFlight
from zae_limiter.ports.io import Io
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run


@dataclass
class Library:
    """A value to read, behind a gate, and readers that are tasks or threads."""

    driver: Driver
    io: Io
    gate: Gate
    single_flight: SingleFlight = field(default_factory=SingleFlight)
    reads: int = 0
    failure: Exception | None = None

    async def read(self) -> int:
        self.reads += 1
        count = self.reads
        await self.gate.passed()
        if self.failure is not None:
            raise self.failure
        return count

    def reader(self, key: str = "it") -> asyncio.Future[Any]:
        work = self.single_flight.share(self.io, key, self.read)
        return asyncio.ensure_future(work) if self.driver == "asyncio" else in_thread(work)

    async def readers(self, count: int, key: str = "it") -> list[asyncio.Future[Any]]:
        """A leader that reads, behind the gate, and followers that wait for it."""
        self.gate.close()
        begun = [self.reader(key)]
        await until(lambda: key in self.single_flight._calls)
        begun += [self.reader(key) for _ in range(count - 1)]
        await until(lambda: len(self.single_flight._calls[key].followers) == count - 1)
        return begun


@pytest.fixture(params=["asyncio", "blocking"])
async def library(request: pytest.FixtureRequest) -> AsyncIterator[Library]:
    driver: Driver = request.param
    made = Library(driver, AsyncioIo() if driver == "asyncio" else BlockingIo(), Gate(driver))
    yield made
    assert not made.single_flight._calls


async def test_calls_made_while_an_equal_call_is_under_way_get_its_result(library: Library) -> None:
    begun = await library.readers(8)
    library.gate.open()
    assert await asyncio.gather(*begun) == [1] * 8
    assert library.reads == 1


async def test_a_call_made_after_an_equal_call_has_ended_is_a_call_of_its_own(
    library: Library,
) -> None:
    assert await library.reader() == 1
    assert await library.reader() == 2


async def test_a_call_with_another_key_does_not_wait(library: Library) -> None:
    begun = await library.readers(2)
    other = library.reader("another")
    await until(lambda: library.reads == 2)
    library.gate.open()
    assert await asyncio.gather(*begun, other) == [1, 1, 2]


async def test_a_call_that_fails_fails_for_all_followers(library: Library) -> None:
    begun = await library.readers(4)
    library.failure = LookupError("gone")
    library.gate.open()
    assert await asyncio.gather(*begun, return_exceptions=True) == [library.failure] * 4
    assert library.reads == 1
    library.failure = None
    assert await library.reader() == 2


async def test_the_followers_of_a_call_without_a_value_get_none() -> None:
    single_flight, io, gate = SingleFlight(), AsyncioIo(), asyncio.Event()
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        await gate.wait()

    begun = [asyncio.ensure_future(single_flight.share(io, "it", call)) for _ in range(3)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*begun) == [None] * 3
    assert calls == 1


async def test_a_follower_makes_the_call_if_the_leader_is_cancelled() -> None:
    library = Library("asyncio", AsyncioIo(), Gate("asyncio"))
    library.gate.close()
    started = asyncio.Event()

    async def read_for_ever() -> int:
        started.set()
        await asyncio.sleep(1000)
        return 0

    first = asyncio.ensure_future(library.single_flight.share(library.io, "it", read_for_ever))
    await started.wait()
    followers = [library.reader() for _ in range(3)]
    await until(lambda: len(library.single_flight._calls["it"].followers) == 3)
    first.cancel()
    await until(
        lambda: library.reads == 1 and len(library.single_flight._calls["it"].followers) == 2
    )
    library.gate.open()
    assert await asyncio.gather(*followers) == [1, 1, 1]
    assert library.reads == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_follower_that_is_cancelled_stops_no_other() -> None:
    library = Library("asyncio", AsyncioIo(), Gate("asyncio"))
    begun = await library.readers(3)
    begun[1].cancel()
    library.gate.open()
    results = await asyncio.gather(*begun, return_exceptions=True)
    assert (results[0], type(results[1]), results[2]) == (1, asyncio.CancelledError, 1)


class Interrupt(BaseException):
    """An interrupt, such as that of Ctrl-C."""


def interrupted(after: int, call: Callable[[], object]) -> bool:
    """Make a call, and raise an interrupt at a place where Python lets signals in: where a
    function of the module begins, or a function that it called has returned. False if there are
    not so many places."""
    places = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal places
        is_ours = frame.f_code.co_filename == single_flight_module.__file__
        if is_ours and event in ("call", "c_return"):
            places += 1
            if places == after:
                raise Interrupt

    sys.setprofile(profile)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_an_interrupt_anywhere_leaves_no_call_behind() -> None:
    single_flight, io = SingleFlight(), BlockingIo()

    async def read() -> int:
        return 1

    after = 0
    while interrupted(after + 1, lambda: run(single_flight.share(io, "it", read))):
        after += 1
        assert not single_flight._calls, after
    assert after > 5
    assert run(single_flight.share(io, "it", read)) == 1
