"""Callers of models through real SDKs, one for each API and driver, all used alike."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.integrations.anthropic import limit_anthropic
from zae_limiter.integrations.llm import LlmTerms, ProviderPace
from zae_limiter.integrations.llm.client import LimitedClient
from zae_limiter.integrations.openai import limit_openai

PROMPT = "How many tokens are a lot?"
MAX_TOKENS = 100
REQUESTS, TOKENS = 1_000, 1_000_000
_PATHS = {
    "chat": ("chat", "completions", "create"),
    "responses": ("responses", "create"),
    "messages": ("messages", "create"),
}
KINDS = [(api, is_async) for api in _PATHS for is_async in (True, False)]


@dataclass
class LlmCaller:
    """One API of one SDK, with a limiter of its own."""

    api: str
    client: LimitedClient
    limiter: RateLimiter | SyncRateLimiter
    pace: ProviderPace
    entity_id: str = "key-1"

    def arguments(self, model: str, **more: Any) -> dict[str, Any]:
        cap = "max_output_tokens" if self.api == "responses" else "max_tokens"
        given: dict[str, Any] = {"model": model, cap: MAX_TOKENS, **more}
        if self.api == "responses":
            return {**given, "input": PROMPT}
        return {**given, "messages": [{"role": "user", "content": PROMPT}]}

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the prompt, as estimated: a message also has a role."""
        return 7 if self.api == "responses" else 8

    async def create(self, model: str, **more: Any) -> Any:
        """Call the model."""
        method: Any = self.client
        for name in _PATHS[self.api]:
            method = getattr(method, name)
        return await given(method(**self.arguments(model, **more)))

    async def charged(self, model: str) -> tuple[int, int]:
        """The requests and tokens that the entity has been charged."""
        found = await given(self.limiter.available(self.entity_id, model))
        return REQUESTS - found["rpm"], TOKENS - found["tpm"]


async def given(value: Any) -> Any:
    """The value, awaited if it has to be."""
    return await value if inspect.isawaitable(value) else value


async def events_of(stream: Any, at_most: int | None = None) -> list[Any]:
    """The events of a stream."""
    found: list[Any] = []
    while at_most is None or len(found) < at_most:
        try:
            event = await anext(stream) if hasattr(stream, "__anext__") else next(stream)
        except (StopIteration, StopAsyncIteration):
            break
        found.append(event)
    return found


async def close(stream: Any) -> None:
    """Close a stream."""
    await given(stream.close())


def sdk_client(api: str, url: str, *, is_async: bool, max_retries: int) -> Any:
    """A client of the SDK itself. The server has no certificates, so none are loaded."""
    sdk: Any = anthropic if api == "messages" else openai
    http = (sdk.DefaultAsyncHttpxClient if is_async else sdk.DefaultHttpxClient)(verify=False)
    kinds = {"messages": ("AsyncAnthropic", "Anthropic")}.get(api, ("AsyncOpenAI", "OpenAI"))
    kind = getattr(sdk, kinds[0] if is_async else kinds[1])
    base = url if api == "messages" else f"{url}/v1"
    return kind(base_url=base, api_key="k", max_retries=max_retries, http_client=http)


@asynccontextmanager
async def llm_caller(
    api: str, url: str, *, is_async: bool, terms: LlmTerms | None = None, max_retries: int = 2
) -> AsyncIterator[LlmCaller]:
    """A caller whose limits gain a token in many years."""
    limits = [Limit("rpm", REQUESTS, 1, 10**9), Limit("tpm", TOKENS, 1, 10**9)]
    limiter: RateLimiter | SyncRateLimiter
    if is_async:
        limiter = RateLimiter(repository=await Repository.open(url="memory://"))
    else:
        limiter = SyncRateLimiter(repository=SyncRepository.open(url="memory://"))
    await given(limiter.set_system_defaults(limits))
    client = sdk_client(api, url, is_async=is_async, max_retries=max_retries)
    limit: Any = limit_anthropic if api == "messages" else limit_openai
    pace = ProviderPace()
    try:
        limited = limit(client, limiter, "key-1", terms, pace=pace)
        yield LlmCaller(api, limited, limiter, pace)
    finally:
        await given(client.close())
        await given(limiter.close())
