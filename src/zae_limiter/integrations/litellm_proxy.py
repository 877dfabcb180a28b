"""A hook by which the LiteLLM proxy charges the calls of its clients.

    async def open_limiter() -> RateLimiter:                             # limits.py
        return RateLimiter(repository=await Repository.open(url=...))

    hook = LiteLlmProxyHook(open_limiter, key=lambda auth: auth.team_id or auth.token)

    litellm_settings: {callbacks: limits.hook}                           # config.yaml

A call is charged its estimate before it is routed, and settled with the usage of its answer or
when its stream ends, breaks or is left. Refusals are answered with 429, as in `docs/http.md`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

from ..lease import Lease
from ..limiter import RateLimiter
from .http_fields import Expose
from .http_options import HttpOptions
from .llm.client import LlmCharge
from .llm.dialect import Dialect, value_at
from .llm.dialects import ChatDialect, EmbeddingsDialect, MessagesDialect, ResponsesDialect
from .llm.meter import CallMeter, refund_call, settle_call
from .llm.pace import ProviderPace
from .llm.sse import SseReader
from .llm.terms import LlmTerms
from .missing import missing_extra

try:
    from fastapi import HTTPException
    from litellm.exceptions import Timeout
    from litellm.integrations.custom_logger import CustomLogger
except ImportError as error:
    raise missing_extra("litellm") from error

_CHAT = ChatDialect()
_DIALECTS: dict[str, Dialect] = {
    "aembedding": EmbeddingsDialect(),
    "anthropic_messages": MessagesDialect(),
    "aresponses": ResponsesDialect(),
    "embeddings": EmbeddingsDialect(),
    "responses": ResponsesDialect(),
}
_FRAMING = ("content-type", "content-length")


class _OpenCall:
    """A call that the proxy has let in, until its lease ends."""

    def __init__(self, meter: CallMeter, lease: Lease) -> None:
        self.meter = meter
        self.lease = lease
        self._is_over = False
        self._sse = SseReader()

    def hear(self, event: Any) -> bool:
        """Note an event of the stream, and tell whether the client is to see it. Some routes pass
        on the bytes of their provider."""
        if not isinstance(event, bytes | str):
            return self.meter.hear_event(event)
        for each in self._sse.feed(event):
            self.meter.hear_event(each)
        return True

    async def settle(self) -> None:
        """Charge the tokens that were used, unless the call has ended."""
        if not self._is_over:
            self._is_over = True
            await settle_call(self.lease, self.meter.amounts())

    async def fail(self, error: BaseException) -> None:
        """Give the charge back, unless the call has ended or the model may have worked for it."""
        if self._is_over:
            return
        self._is_over = True
        if self.meter.hear_error(error):
            await settle_call(self.lease, self.meter.reserved_or_heard())
        else:
            await refund_call(self.lease)


# The proxy handles a request in one task, and streams its answer from there.
_current: ContextVar[_OpenCall | None] = ContextVar("zae_limiter_proxy_call", default=None)


class LiteLlmProxyHook(CustomLogger):  # type: ignore[misc]
    """A hook that charges every call through a proxy.

    `open_limiter` is awaited once, in the proxy's event loop. `key` finds the entity to charge in
    the `UserAPIKeyAuth` of a call.
    """

    def __init__(
        self,
        open_limiter: Callable[[], Awaitable[RateLimiter]],
        *,
        key: Callable[[Any], str],
        terms: LlmTerms | None = None,
        pace: ProviderPace | None = None,
        expose: Expose = "own",
    ) -> None:
        super().__init__()
        self._open_limiter = open_limiter
        self._key = key
        self._terms = terms or LlmTerms()
        self._pace = pace or ProviderPace()
        self._options = HttpOptions(expose=expose)
        self._opening: asyncio.Future[RateLimiter] | None = None

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Charge a call before it is routed, or answer that it is refused."""
        try:
            charge = LlmCharge(
                await self._limiter(),
                self._key(user_api_key_dict),
                self._terms,
                self._pace,
                (Timeout,),
            )
            meter = charge.meter(_DIALECTS.get(call_type, _CHAT), (), data)
            _current.set(_OpenCall(meter, await charge.begin(meter)))
        except Exception as error:
            raise self._answered(error) from error
        return meter.asked

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> None:
        """Settle a call that was answered in one piece."""
        call = _current.get()
        if call is not None and not hasattr(response, "__aiter__"):
            call.meter.hear_answer(response)
            await call.settle()

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Settle a call when its stream ends, breaks or is left."""
        call, last = _current.get(), None
        try:
            async for last in response:
                if call is None or call.hear(last):
                    yield last
            # Where a provider reports usage unasked, LiteLLM adds it to the last event.
            usage = value_at(last, "_hidden_params", "usage")
            if call is not None and usage is not None:
                call.meter.hear_event({"usage": usage})
        finally:
            if call is not None:
                await call.settle()

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Give back the charge of a call that has failed."""
        call = _current.get()
        if call is not None:
            await call.fail(original_exception)

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: Mapping[str, str] | None = None,
        litellm_call_info: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """Return the fields of the limits."""
        call = _current.get()
        return {} if call is None else dict(self._options.fields([call.lease]))

    async def _limiter(self) -> RateLimiter:
        if self._opening is None or _has_failed(self._opening):
            self._opening = asyncio.ensure_future(self._open_limiter())
        return await asyncio.shield(self._opening)

    def _answered(self, error: Exception) -> Exception:
        answer = self._options.answer(error)
        if answer is None:
            return error
        fields = {name: value for name, value in answer.fields if name.lower() not in _FRAMING}
        return HTTPException(answer.status, json.loads(answer.body), fields)


def _has_failed(opening: asyncio.Future[RateLimiter]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
