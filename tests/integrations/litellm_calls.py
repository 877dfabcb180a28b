"""Calls of the real LiteLLM against a model server: prints as JSON what each case was charged.

LiteLLM wants other versions of its dependencies than the tests have, so this runs in an environment
of its own: `python -m tests.integrations.litellm_calls`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import litellm

from tests.support.model_server import ModelServer, model_server
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.integrations.litellm import limit_litellm
from zae_limiter.integrations.llm import LlmTerms, ProviderPaused
from zae_limiter.integrations.llm.client import LimitedClient

PROMPT = [{"role": "user", "content": "How many tokens are a lot?"}]
LIMITS = [Limit("rpm", 1_000, 1, 10**9), Limit("tpm", 1_000_000, 1, 10**9)]
TERMS = LlmTerms(resource="models")


class Caller:
    """LiteLLM with a limiter of its own, whose calls are awaited whatever the driver."""

    def __init__(self, limiter: Any, server: ModelServer, target: Any = litellm) -> None:
        self.limiter = limiter
        self.server = server
        self.client: LimitedClient = limit_litellm(target, limiter, "key-1", TERMS)
        self.prefix = "a" if isinstance(limiter, RateLimiter) else ""

    async def call(self, model: str, method: str = "completion", **more: Any) -> Any:
        base = self.server.url if model.startswith("anthropic") else f"{self.server.url}/v1"
        asked = {"messages": PROMPT, "max_tokens": 100} if method == "completion" else {}
        asked = {"api_base": base, "api_key": "k", "max_retries": 0, **asked, **more}
        return await given(getattr(self.client, self.prefix + method)(model=model, **asked))

    async def charged(self) -> list[int]:
        left = await given(self.limiter.available("key-1", "models"))
        return [1_000 - left["rpm"], 1_000_000 - left["tpm"]]


async def given(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def read(stream: Any, at_most: int = 10**6) -> list[Any]:
    found: list[Any] = []
    while len(found) < at_most:
        try:
            found.append(
                await anext(stream) if hasattr(type(stream), "__anext__") else next(stream)
            )
        except (StopIteration, StopAsyncIteration):
            break
    return found


async def whole(caller: Caller) -> None:
    await caller.call("openai/plain")


async def whole_anthropic(caller: Caller) -> None:
    await caller.call("anthropic/plain")


async def whole_responses(caller: Caller) -> None:
    await caller.call("openai/plain", "responses", input="How many?")


async def embedding(caller: Caller) -> None:
    await caller.call("openai/plain", "embedding", input=["a text"])


async def streamed(caller: Caller) -> str:
    chunks = await read(await caller.call("openai/plain", stream=True))
    assert not any(getattr(chunk, "usage", None) for chunk in chunks)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


async def streamed_with_usage(caller: Caller) -> int:
    options = {"include_usage": True}
    chunks = await read(await caller.call("openai/plain", stream=True, stream_options=options))
    total: int = chunks[-1].usage.total_tokens
    return total


async def streamed_anthropic(caller: Caller) -> None:
    await read(await caller.call("anthropic/plain", stream=True))


async def streamed_responses(caller: Caller) -> None:
    await read(await caller.call("openai/plain", "responses", input="How many?", stream=True))


async def closed(caller: Caller) -> None:
    stream = await caller.call("openai/slow", stream=True)
    await read(stream, 1)
    await given(stream.close())
    await given(stream.close())


async def broken(caller: Caller) -> str:
    try:
        await read(await caller.call("openai/broken", stream=True))
    except litellm.exceptions.ServiceUnavailableError:
        return "broken"
    return "nothing was raised"


async def failing(caller: Caller) -> list[str]:
    seen = []
    for model in ("openai/failing", "openai/refused", "anthropic/failing"):
        try:
            await caller.call(model)
        except Exception as error:
            seen.append(type(error).__name__)
    return seen


async def retried(caller: Caller) -> int:
    caller.server.calls.clear()
    await caller.call("openai/busy-once", num_retries=2)
    return caller.server.calls["busy-once"]


async def stuck(caller: Caller) -> str:
    try:
        await caller.call("openai/stuck", timeout=0.1)
    except litellm.exceptions.Timeout:
        return "timeout"
    return "nothing was raised"


async def paused(caller: Caller) -> list[Any]:
    caller.server.calls.clear()
    with suppress(litellm.exceptions.RateLimitError):
        await caller.call("openai/busy")
    try:
        await caller.call("openai/busy")
    except ProviderPaused as pause:
        return [20 < pause.retry_after_seconds <= 30, caller.server.calls["busy"]]
    return ["nothing was raised"]


async def refused_first(caller: Caller) -> list[Any]:
    caller.server.calls.clear()
    try:
        await caller.call("openai/plain", max_tokens=2_000_000)
    except Exception as error:
        return [type(error).__name__, sum(caller.server.calls.values())]
    return ["nothing was raised"]


async def another_method(caller: Caller) -> str:
    try:
        _ = caller.client.image_generation
    except AttributeError as error:
        return str(error).partition(",")[0]
    return "it is offered"


async def cancelled(caller: Caller) -> str:
    stream = await caller.call("openai/slow", stream=True)
    await read(stream, 1)
    try:
        async with asyncio.timeout(0.05):
            await read(stream)
    except TimeoutError:
        return "timeout"
    return "the stream ended"


async def routed(caller: Caller) -> str:
    """A router falls back to another model, and the call is one call."""
    base = f"{caller.server.url}/v1"
    models = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_base": base, "api_key": "k"},
        }
        for name in ("failing", "plain")
    ]
    router = litellm.Router(models, fallbacks=[{"failing": ["plain"]}], num_retries=0)
    client = limit_litellm(router, caller.limiter, "key-1", TERMS)
    method = getattr(client, f"{caller.prefix}completion")
    answer = await given(method(model="failing", messages=PROMPT, max_tokens=100))
    model: str = answer.model
    return model


BOTH: list[Callable[[Caller], Awaitable[Any]]] = [
    whole,
    whole_anthropic,
    whole_responses,
    embedding,
    streamed,
    streamed_with_usage,
    streamed_anthropic,
    streamed_responses,
    closed,
    broken,
    failing,
    retried,
    stuck,
    paused,
    refused_first,
    another_method,
    routed,
]


async def main() -> None:
    litellm.suppress_debug_info = True
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    found: dict[str, Any] = {}
    with model_server() as server:
        for case in [*BOTH, cancelled]:
            async with RateLimiter(repository=await Repository.open(url="memory://")) as limiter:
                await limiter.set_system_defaults(LIMITS)
                caller = Caller(limiter, server)
                found[f"{case.__name__}-async"] = [await case(caller), await caller.charged()]
        for case in BOTH:
            with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as blocking:
                blocking.set_system_defaults(LIMITS)
                caller = Caller(blocking, server)
                found[f"{case.__name__}-sync"] = [await case(caller), await caller.charged()]
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
