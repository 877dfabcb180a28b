"""What several want to know at the same time is read once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

from tests.drivers import Driver
from tests.flows.crowd import Gate, in_thread, until
from zae_limiter.local import single_flight as readings_module
from zae_limiter.local.single_flight import Readings
from zae_limiter.ports.io import Io
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run


@dataclass
class Library:
    """Something to read, behind a gate, and readers that are tasks or threads."""

    driver: Driver
    io: Io
    gate: Gate
    readings: Readings = field(default_factory=Readings)
    reads: int = 0
    failure: Exception | None = None

    async def read(self) -> int:
        self.reads += 1
        count = self.reads
        await self.gate.passed()
        if self.failure is not None:
            raise self.failure
        return count

    def reader(self, what: str = "it") -> asyncio.Future[Any]:
        work = self.readings.share(self.io, what, self.read)
        return asyncio.ensure_future(work) if self.driver == "asyncio" else in_thread(work)

    async def readers(self, count: int, what: str = "it") -> list[asyncio.Future[Any]]:
        """One who reads, behind the gate, and others who wait for it."""
        self.gate.close()
        begun = [self.reader(what)]
        await until(lambda: what in self.readings._under_way)
        begun += [self.reader(what) for _ in range(count - 1)]
        await until(lambda: len(self.readings._under_way[what].waiting) == count - 1)
        return begun


@pytest.fixture(params=["asyncio", "blocking"])
async def library(request: pytest.FixtureRequest) -> AsyncIterator[Library]:
    driver: Driver = request.param
    made = Library(driver, AsyncioIo() if driver == "asyncio" else BlockingIo(), Gate(driver))
    yield made
    assert not made.readings._under_way


async def test_all_who_ask_meanwhile_hear_of_one_reading(library: Library) -> None:
    begun = await library.readers(8)
    library.gate.open()
    assert await asyncio.gather(*begun) == [1] * 8
    assert library.reads == 1


async def test_who_asks_afterwards_reads_again(library: Library) -> None:
    assert await library.reader() == 1
    assert await library.reader() == 2


async def test_who_asks_for_something_else_does_not_wait(library: Library) -> None:
    begun = await library.readers(2)
    other = library.reader("another")
    await until(lambda: library.reads == 2)
    library.gate.open()
    assert await asyncio.gather(*begun, other) == [1, 1, 2]


async def test_a_reading_that_fails_fails_for_all(library: Library) -> None:
    begun = await library.readers(4)
    library.failure = LookupError("gone")
    library.gate.open()
    assert await asyncio.gather(*begun, return_exceptions=True) == [library.failure] * 4
    assert library.reads == 1
    library.failure = None
    assert await library.reader() == 2


async def test_if_a_reader_gives_up_another_reads() -> None:
    library = Library("asyncio", AsyncioIo(), Gate("asyncio"))
    library.gate.close()
    started = asyncio.Event()

    async def read_for_ever() -> int:
        started.set()
        await asyncio.sleep(1000)
        return 0

    first = asyncio.ensure_future(library.readings.share(library.io, "it", read_for_ever))
    await started.wait()
    others = [library.reader() for _ in range(3)]
    await until(lambda: len(library.readings._under_way["it"].waiting) == 3)
    first.cancel()
    await until(lambda: library.reads == 1 and len(library.readings._under_way["it"].waiting) == 2)
    library.gate.open()
    assert await asyncio.gather(*others) == [1, 1, 1]
    assert library.reads == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_who_gives_up_waiting_stops_nobody() -> None:
    library = Library("asyncio", AsyncioIo(), Gate("asyncio"))
    begun = await library.readers(3)
    begun[1].cancel()
    library.gate.open()
    results = await asyncio.gather(*begun, return_exceptions=True)
    assert (results[0], type(results[1]), results[2]) == (1, asyncio.CancelledError, 1)


class Interrupt(BaseException):
    """As Ctrl-C."""


def interrupted(after: int, call: Callable[[], object]) -> bool:
    """Call, and raise an interrupt where Python lets signals in: as a function of the module
    begins, or something that it called has returned. False if there were not that many places."""
    places = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal places
        is_ours = frame.f_code.co_filename == readings_module.__file__
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


def test_an_interrupt_anywhere_leaves_no_reading_behind() -> None:
    readings, io = Readings(), BlockingIo()

    async def read() -> int:
        return 1

    after = 0
    while interrupted(after + 1, lambda: run(readings.share(io, "it", read))):
        after += 1
        assert not readings._under_way, after
    assert after > 5
    assert run(readings.share(io, "it", read)) == 1
