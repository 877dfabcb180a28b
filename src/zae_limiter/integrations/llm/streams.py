"""Streams of an SDK that settle their lease when they end, break or are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self

from ...lease import Lease, SyncLease
from .meter import CallMeter, settle_call, settle_call_blocking


class MeteredStream:
    """A stream that asyncio reads. What the SDK's own stream has besides is reached through it."""

    def __init__(self, stream: Any, meter: CallMeter, lease: Lease) -> None:
        self._stream = stream
        self._events = aiter(stream)
        self._meter = meter
        self._lease = lease
        self._is_settled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            event = await anext(self._events)
            while not self._meter.hear_event(event):
                event = await anext(self._events)
        except BaseException:
            # The end, a provider that failed, or a caller that was cancelled.
            await self._settle()
            raise
        return event

    async def close(self) -> None:
        """Close the SDK's stream, and settle for what was streamed."""
        try:
            await _close(self._stream)
        finally:
            await self._settle()

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _settle(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            await settle_call(self._lease, self._meter.amounts())


class SyncMeteredStream:
    """A stream that a thread reads. What the SDK's own stream has besides is reached through it."""

    def __init__(self, stream: Any, meter: CallMeter, lease: SyncLease) -> None:
        self._stream = stream
        self._events = iter(stream)
        self._meter = meter
        self._lease = lease
        self._is_settled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            event = next(self._events)
            while not self._meter.hear_event(event):
                event = next(self._events)
        except BaseException:
            self._settle()
            raise
        return event

    def close(self) -> None:
        """Close the SDK's stream, and settle for what was streamed."""
        try:
            _close_blocking(self._stream)
        finally:
            self._settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _settle(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            settle_call_blocking(self._lease, self._meter.amounts())


async def _close(stream: Any) -> None:
    """Close a stream of asyncio. SDKs name the method differently, and some streams have none."""
    close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
    if close is not None:
        await close()


def _close_blocking(stream: Any) -> None:
    """Close a stream, or the stream inside one of LiteLLM, which has no such method."""
    for owner in (stream, getattr(stream, "completion_stream", None)):
        close = getattr(owner, "close", None)
        if close is not None:
            close()
            return
