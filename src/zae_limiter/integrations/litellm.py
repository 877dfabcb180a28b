"""Calls of LiteLLM, or of a LiteLLM router, that are charged.

client = limit_litellm(litellm, limiter, "key-1")
answer = await client.acompletion(model="openai/gpt-4o", messages=[...], max_tokens=500)

`integrations.litellm_proxy` has a hook for the LiteLLM proxy.
"""

from __future__ import annotations

from typing import Any

from ..core.exceptions import ValidationError
from ..limiter import RateLimiter
from ..sync_limiter import SyncRateLimiter
from .llm.client import LimitedClient, LlmCharge
from .llm.dialect import Dialect
from .llm.dialects import ChatDialect, EmbeddingsDialect, ResponsesDialect
from .llm.pace import ProviderPace
from .llm.terms import LlmTerms
from .missing import missing_extra

try:
    from litellm.exceptions import Timeout
except ImportError as error:
    raise missing_extra("litellm") from error

_METHODS: dict[str, Dialect] = {
    "completion": ChatDialect(),
    "embedding": EmbeddingsDialect(),
    "responses": ResponsesDialect(),
    "text_completion": ChatDialect(),
}
_ASYNC_METHODS = {f"a{name}": dialect for name, dialect in _METHODS.items()}


def limit_litellm(
    target: Any,
    limiter: RateLimiter | SyncRateLimiter,
    entity_id: str,
    terms: LlmTerms | None = None,
    *,
    pace: ProviderPace | None = None,
) -> LimitedClient:
    """Return the charged functions of the module `litellm`, or methods of a `litellm.Router`: with
    a `RateLimiter` those that are awaited, with a `SyncRateLimiter` the others."""
    if not isinstance(limiter, RateLimiter | SyncRateLimiter):
        raise ValidationError("limiter", limiter, "must be a RateLimiter or a SyncRateLimiter")
    charge = LlmCharge(limiter, entity_id, terms or LlmTerms(), pace or ProviderPace(), (Timeout,))
    is_async = isinstance(limiter, RateLimiter)
    return LimitedClient(target, charge, _ASYNC_METHODS if is_async else _METHODS)
