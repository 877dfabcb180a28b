"""Both drivers run the same test bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zae_limiter.ports.io import Io
from zae_limiter.runtime.asyncio_driver import AsyncioIo
from zae_limiter.runtime.blocking import BlockingIo, run


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver runs coroutines to their end."""

    blocking: bool
    io: Io
    run: Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def asyncio_driver() -> Iterator[Driver]:
    """Keep an event loop for the length of a block."""
    io = AsyncioIo()
    with asyncio.Runner() as runner:
        yield Driver(False, io, runner.run)
        runner.run(io.close())


@contextmanager
def blocking_driver() -> Iterator[Driver]:
    """Run everything in the calling thread."""
    yield Driver(True, BlockingIo(), run)
