"""Clients of the OpenAI SDK whose calls are charged.

client = limit_openai(AsyncOpenAI(), limiter, "key-1")
answer = await client.chat.completions.create(model="gpt-4", messages=[...], max_tokens=500)
"""

from __future__ import annotations

from ..limiter import RateLimiter
from ..sync_limiter import SyncRateLimiter
from .llm.client import LimitedClient, LlmCharge, check_limiter, listen_to
from .llm.dialect import Dialect
from .llm.dialects import ChatDialect, EmbeddingsDialect, ResponsesDialect
from .llm.pace import ProviderPace
from .llm.terms import LlmTerms
from .missing import missing_extra

try:
    from openai import APITimeoutError, AsyncOpenAI, OpenAI
except ImportError as error:
    raise missing_extra("openai") from error

_METHODS: dict[str, Dialect] = {
    "chat.completions.create": ChatDialect(),
    "chat.completions.parse": ChatDialect(),
    "completions.create": ChatDialect(),
    "embeddings.create": EmbeddingsDialect(),
    "responses.create": ResponsesDialect(),
    "responses.parse": ResponsesDialect(),
}


def limit_openai(
    client: OpenAI | AsyncOpenAI,
    limiter: RateLimiter | SyncRateLimiter,
    entity_id: str,
    terms: LlmTerms | None = None,
    *,
    pace: ProviderPace | None = None,
) -> LimitedClient:
    """Return the charged methods of a client. An `AsyncOpenAI` needs a `RateLimiter`, an `OpenAI` a
    `SyncRateLimiter`. Clients of one account may share a `pace`."""
    is_async = isinstance(client, AsyncOpenAI)
    check_limiter(client, limiter, is_async=is_async)
    listen_to(client, is_async=is_async)
    charge = LlmCharge(
        limiter, entity_id, terms or LlmTerms(), pace or ProviderPace(), (APITimeoutError,)
    )
    return LimitedClient(client, charge, _METHODS)
