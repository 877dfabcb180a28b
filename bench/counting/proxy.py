"""A server on loopback that passes everything on, and counts it."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from ..costs import Cost

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CountingProxy(ABC):
    """Lives in a thread of its own for the length of a block. `total` counts from the start."""

    def __init__(self, upstream_url: str) -> None:
        self._target = urlsplit(upstream_url)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.url = ""
        self.total = Cost()

    @abstractmethod
    async def carry(self, client: Streams, server: Streams) -> None:
        """Pass on what a connection carries, until either side ends it."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.url = self._target._replace(netloc=place).geturl()
        self._ready.set()
        await self._ended.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connect((reader, writer)))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, client: Streams) -> None:
        server = await asyncio.open_connection(self._target.hostname, self._target.port)
        try:
            await self.carry(client, server)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            for _, writer in (client, server):
                writer.close()
