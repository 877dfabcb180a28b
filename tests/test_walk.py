"""The walk of an acquire: from the facade to the store's write the stack goes down only.

A real acquire, adjust and exit are traced on each store by each driver. The stack at the
store's write shows each file once, in the order in which the design lists them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zae_limiter
from tests.support.drivers import World
from zae_limiter import Limit

PACKAGE = Path(zae_limiter.__file__).parent
ACQUIRE = [
    "lease.py",
    "flows/acquire/lease.py",
    "flows/acquire/acquire.py",
    "flows/coalesce/batch.py",
    "flows/acquire/item.py",
    "flows/acquire/send.py",
]
EXIT = [
    "lease.py",
    "flows/acquire/lease.py",
    "flows/acquire/settle.py",
    "flows/coalesce/batch.py",
    "flows/acquire/item.py",
    "flows/acquire/send.py",
]
MOST_FILES = 7


def files_of(frame: FrameType | None) -> Iterator[str]:
    """The files of the package on the stack, the innermost first."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            yield path.relative_to(PACKAGE).as_posix()
        frame = frame.f_back


class Tracer:
    """Notes the stack whenever something of the store begins to write an item."""

    def __init__(self, store: str) -> None:
        self._buckets = f"backends/{store}/buckets.py"
        self.stacks: list[list[str]] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or frame.f_code.co_name not in ("write", "send"):
            return
        files = list(files_of(frame))
        if files and (files[0] == self._buckets or files[0].endswith("_edge.py")):
            self.stacks.append([name for name, _ in groupby(reversed(files))])

    def deepest(self) -> list[str]:
        """The longest of the stacks: where there is a wire, the one at its edge."""
        return max(self.stacks, key=len)


def parts(stack: list[str]) -> tuple[list[str], list[str], list[str]]:
    """The files of flows and facade, of the driver, and of the wire."""
    driver = [name for name in stack if name.startswith("runtime/")]
    wire = [name for name in stack if "/wire/" in name]
    return [name for name in stack if name not in {*driver, *wire}], driver, wire


async def traced(world: World, act: Callable[[], Any]) -> list[str]:
    tracer = Tracer(world.store)
    sys.setprofile(tracer)
    try:
        await act()
    finally:
        sys.setprofile(None)
    return tracer.deepest()


@pytest.fixture
async def warm(world: World) -> World:
    """A world in which the bucket is in use and everything about it is known."""
    limiter = world.limiter(default_limits=[Limit.per_day("rpm", 1000)])
    for _ in range(3):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
            await lease.adjust(rpm=1)
    return world


def check(world: World, stack: list[str], spine: list[str]) -> None:
    ours, driver, wire = parts(stack)
    assert ours == [*spine, f"backends/{world.store}/buckets.py"], stack
    assert len(ours) <= MOST_FILES, stack
    assert driver, stack
    assert stack.index(driver[0]) == 1, "the driver stands right behind the facade"
    assert bool(wire) is (world.store == "dynamodb"), stack
    assert stack[len(stack) - len(wire) :] == wire, "the wire comes last"
    assert len(set(wire)) == len(wire), stack


async def test_the_stack_of_a_warm_acquire_goes_down_only(warm: World) -> None:
    limiter = warm.limiter(default_limits=[Limit.per_day("rpm", 1000)])
    acquisition = limiter.acquire("key-1", "gpt-4", {"rpm": 1})
    check(warm, await traced(warm, acquisition.__aenter__), ACQUIRE)
    await acquisition.__aexit__(None, None, None)


async def test_the_stack_of_a_correction_at_the_end_goes_down_only(warm: World) -> None:
    limiter = warm.limiter(default_limits=[Limit.per_day("rpm", 1000)])
    acquisition = limiter.acquire("key-1", "gpt-4", {"rpm": 1})
    lease = await acquisition.__aenter__()
    await lease.adjust(rpm=2)
    stack = await traced(warm, lambda: acquisition.__aexit__(None, None, None))
    check(warm, stack, EXIT)
