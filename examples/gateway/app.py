"""A gateway in front of a model: streams answers, with limits by key, project and organisation.

zae-limiter limits apply limits.yaml --url sqlite:///limits.db
OPENAI_BASE_URL=... OPENAI_API_KEY=... uvicorn app:app --workers 4
"""

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from answers import MeteredAnswer, MeteredStream, sse
from customers import customer_of
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from metrics import metrics_served
from openai import APIConnectionError, APIStatusError, AsyncOpenAI
from pydantic import BaseModel, ConfigDict, Field

from zae_limiter import Lease, RateLimiter, Repository
from zae_limiter.integrations import Rule, exempt
from zae_limiter.integrations.call import call_of_asgi
from zae_limiter.integrations.fastapi import RateLimitMiddleware, charging
from zae_limiter.integrations.llm import LlmTerms, ProviderPace, ProviderPaused

URL = os.environ.get("ZAEL_URL", "sqlite:///limits.db")
TERMS = LlmTerms(max_output_tokens=512)
PACE = ProviderPace()
CHAT = Rule("chat", key=customer_of, cost={"rpm": 1, "tpm": 0})


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    repository = await Repository.open(url=URL)
    # No retries: the SDK would wait for as long as the provider says, and clients with it.
    provider = AsyncOpenAI(max_retries=0)
    async with RateLimiter(repository=repository) as limiter, provider:
        app.state.limiter, app.state.provider = limiter, provider
        with metrics_served(repository):
            yield


app = FastAPI(lifespan=lifespan)
# It answers refusals with 429, adds the fields of the limits, and ends the lease of a call when its
# stream ends, breaks or is left.
app.add_middleware(
    RateLimitMiddleware, limiter=lambda scope: app.state.limiter, rules=[exempt("/health")]
)


class ChatRequest(BaseModel):
    """The part of a request that the gateway looks at. The rest goes to the model as it is."""

    model_config = ConfigDict(extra="allow")
    model: str
    messages: list[dict[str, Any]]
    max_tokens: int = Field(default=TERMS.max_output_tokens, ge=1)
    stream: bool = False


@app.get("/health")
async def health() -> dict[str, bool]:
    return {"ok": True}


@app.post("/v1/chat/completions")
async def chat(
    asked: ChatRequest, request: Request, lease: Annotated[Lease, Depends(charging(CHAT))]
) -> Response:
    arguments = asked.model_dump()
    estimated = TERMS.estimate(arguments)
    # Refused here, the call is a 429, costs nothing and is not sent.
    await lease.consume(tpm=estimated.total_tokens)
    answer = MeteredAnswer(lease, customer_of(call_of_asgi(request.scope)), estimated)
    events = _answered(request.app.state.provider, arguments)
    # Until the first part has come, a failure has a status, and is not charged.
    first = await anext(events)
    if asked.stream:
        return MeteredStream(_metered(first, events, answer), answer)
    answer.hear(first)
    await answer.end()
    return Response(first.model_dump_json(), media_type="application/json")


async def _metered(
    part: Any, events: AsyncGenerator[Any], answer: MeteredAnswer
) -> AsyncGenerator[bytes]:
    """Pass on the parts of an answer. Each is counted before it is sent."""
    try:
        while part is not None:
            answer.hear(part)
            yield sse(part)
            part = await anext(events, None)
        yield sse("[DONE]")
    finally:
        await answer.end()
        await events.aclose()


async def _answered(provider: AsyncOpenAI, arguments: dict[str, Any]) -> AsyncGenerator[Any]:
    """Yield the parts of the provider's answer: all of its stream, or one."""
    model = arguments["model"]
    if wait_s := PACE.wait_s(model):
        raise ProviderPaused(model, wait_s)
    if arguments["stream"]:
        arguments = {**arguments, "stream_options": {"include_usage": True}}
    try:
        answer: Any = await provider.chat.completions.create(**arguments)
    except APIStatusError as error:
        PACE.note(model, error.status_code, error.response.headers)
        if wait_s := PACE.wait_s(model):
            raise ProviderPaused(model, wait_s) from error
        raise HTTPException(502, "the model failed") from error
    except APIConnectionError as error:
        raise HTTPException(502, "the model cannot be reached") from error
    if not arguments["stream"]:
        yield answer
        return
    async with answer:
        async for event in answer:
            yield event
