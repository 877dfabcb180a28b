"""Clients of the Anthropic SDK whose calls are charged.

client = limit_anthropic(AsyncAnthropic(), limiter, "key-1")
answer = await client.messages.create(model="claude", messages=[...], max_tokens=500)
async with client.messages.stream(model="claude", messages=[...], max_tokens=500) as stream:
    ...
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..lease import Lease, SyncLease
from ..limiter import RateLimiter
from ..sync_limiter import SyncRateLimiter
from .llm.client import LimitedClient, LlmCharge, check_limiter, listen_to
from .llm.dialect import Dialect
from .llm.dialects import MessagesDialect
from .llm.meter import CallMeter, settle_call, settle_call_blocking
from .llm.pace import ProviderPace
from .llm.terms import LlmTerms
from .missing import missing_extra

try:
    from anthropic import Anthropic, APITimeoutError, AsyncAnthropic
except ImportError as error:
    raise missing_extra("anthropic") from error

_STREAM = "messages.stream"
_METHODS = {"messages.create": MessagesDialect(), _STREAM: MessagesDialect()}


def limit_anthropic(
    client: Anthropic | AsyncAnthropic,
    limiter: RateLimiter | SyncRateLimiter,
    entity_id: str,
    terms: LlmTerms | None = None,
    *,
    pace: ProviderPace | None = None,
) -> LimitedClient:
    """Return the charged methods of a client. An `AsyncAnthropic` needs a `RateLimiter`, an
    `Anthropic` a `SyncRateLimiter`. Clients of one account may share a `pace`."""
    is_async = isinstance(client, AsyncAnthropic)
    check_limiter(client, limiter, is_async=is_async)
    listen_to(client, is_async=is_async)
    charge = LlmCharge(
        limiter, entity_id, terms or LlmTerms(), pace or ProviderPace(), (APITimeoutError,)
    )
    return _LimitedAnthropic(client, charge, _METHODS)


class _LimitedAnthropic(LimitedClient):
    """The SDK's `messages.stream` is a block, not a call."""

    def _charged(self, path: str, method: Callable[..., Any], dialect: Dialect) -> Any:
        if path != _STREAM:
            return super()._charged(path, method, dialect)
        is_async = isinstance(self._charge.limiter, RateLimiter)
        block = _MessageBlock if is_async else _SyncMessageBlock
        charge = self._charge

        def stream(*given: Any, **arguments: Any) -> Any:
            return block(charge, charge.meter(dialect, given, arguments), method)

        return stream


class _MessageBlock:
    """A block that streams a message, settled when it ends with what the SDK has gathered."""

    _lease: Lease

    def __init__(self, charge: LlmCharge, meter: CallMeter, method: Callable[..., Any]) -> None:
        self._charge = charge
        self._meter = meter
        self._method = method

    async def __aenter__(self) -> Any:
        async with self._charge.calling(self._meter) as self._lease:
            self._manager = self._method(**self._meter.asked)
            self._stream = await self._manager.__aenter__()
        return self._stream

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._manager.__aexit__(kind, error, trace)
        finally:
            _hear_snapshot(self._meter, self._stream)
            await settle_call(self._lease, self._meter.amounts())


class _SyncMessageBlock:
    """A block that streams a message in a thread, settled when it ends."""

    _lease: SyncLease

    def __init__(self, charge: LlmCharge, meter: CallMeter, method: Callable[..., Any]) -> None:
        self._charge = charge
        self._meter = meter
        self._method = method

    def __enter__(self) -> Any:
        with self._charge.calling_blocking(self._meter) as self._lease:
            self._manager = self._method(**self._meter.asked)
            self._stream = self._manager.__enter__()
        return self._stream

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._manager.__exit__(kind, error, trace)
        finally:
            _hear_snapshot(self._meter, self._stream)
            settle_call_blocking(self._lease, self._meter.amounts())


def _hear_snapshot(meter: CallMeter, stream: Any) -> None:
    """Read the message as far as it came. Before its first event there is none."""
    try:
        message = stream.current_message_snapshot
    except AssertionError:
        return
    meter.hear_answer(message)
