"""Round trips to Redis."""

from __future__ import annotations

import asyncio

from ..costs import Cost
from .proxy import CountingProxy, Streams

_CHUNK_BYTES = 65_536


class RedisCounter(CountingProxy):
    """What a client sends before it is answered is one call, be it one command or several."""

    async def carry(self, client: Streams, server: Streams) -> None:
        sent = asyncio.Event()

        async def ask() -> None:
            while data := await client[0].read(_CHUNK_BYTES):
                if not sent.is_set():
                    self.total += Cost(calls=1)
                    sent.set()
                server[1].write(data)

        async def answer() -> None:
            while data := await server[0].read(_CHUNK_BYTES):
                sent.clear()
                client[1].write(data)

        async with asyncio.TaskGroup() as both:
            answering = both.create_task(answer())
            await ask()
            answering.cancel()
