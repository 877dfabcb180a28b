"""An API that streams answers, and charges each key one request and the tokens it was really sent.

uvicorn fastapi_app:app --workers 4
curl -N -H 'x-api-key: key-1' -X POST 'http://127.0.0.1:8000/complete?prompt=hello'
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse

from zae_limiter import Lease, Limit, RateLimiter, Repository
from zae_limiter.integrations import Rule, by_header
from zae_limiter.integrations.fastapi import RateLimitMiddleware, charging

URL = os.environ.get("ZAEL_URL", "sqlite:///limits.db")
LIMITS = [Limit.parse("rpm: 5/minute"), Limit.parse("tpm: 1,000/minute")]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with RateLimiter(repository=await Repository.open(url=URL)) as limiter:
        await limiter.set_resource_defaults("complete", LIMITS)
        app.state.limiter = limiter
        yield


app = FastAPI(lifespan=lifespan)
# It answers 429 with Retry-After, and ends the lease when the stream ends or the client leaves.
app.add_middleware(RateLimitMiddleware, limiter=lambda scope: app.state.limiter)
RULE = Rule("complete", key=by_header("x-api-key"), cost={"rpm": 1, "tpm": 0})


@app.post("/complete")
async def complete(
    prompt: str, lease: Annotated[Lease, Depends(charging(RULE))]
) -> StreamingResponse:
    await lease.consume(tpm=len(prompt))  # refused here, the call is a 429 and costs nothing

    async def words() -> AsyncIterator[str]:
        for word in prompt.upper().split():  # ... call the model ...
            await lease.adjust(tpm=len(word))
            yield f"{word} "

    return StreamingResponse(words(), media_type="text/plain")
