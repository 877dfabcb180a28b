"""An API that charges each key one request and the tokens that an answer really cost.

uvicorn fastapi_app:app --workers 4
curl -H 'x-api-key: key-1' -X POST 'http://127.0.0.1:8000/complete?prompt=hello'
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

URL = os.environ.get("ZAEL_URL", "sqlite:///limits.db")
ESTIMATE = 50


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with RateLimiter(repository=await Repository.open(url=URL)) as limiter:
        limits = [Limit.per_minute("rpm", 5), Limit.per_minute("tpm", 1_000)]
        await limiter.set_resource_defaults("complete", limits)
        app.state.limiter = limiter
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(RateLimitExceeded)
async def too_many(request: Request, refused: RateLimitExceeded) -> JSONResponse:
    after = refused.retry_after_header
    headers = {} if after is None else {"Retry-After": after}
    return JSONResponse({"detail": str(refused)}, status_code=429, headers=headers)


@app.post("/complete")
async def complete(prompt: str, x_api_key: Annotated[str, Header()]) -> dict[str, str | int]:
    limiter: RateLimiter = app.state.limiter
    async with limiter.acquire(x_api_key, "complete", {"rpm": 1, "tpm": ESTIMATE}) as lease:
        answer = prompt.upper()  # ... call the model ...
        tokens = len(prompt) + len(answer)
        await lease.adjust(tpm=tokens - ESTIMATE)
    return {"answer": answer, "tokens": tokens}
