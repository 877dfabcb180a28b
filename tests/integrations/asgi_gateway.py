"""A FastAPI gateway that streams, and logs what it served: `uvicorn tests...asgi_gateway:app`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Response, WebSocket
from fastapi.responses import StreamingResponse

from tests.integrations.gateway_rules import (
    CHARGE,
    CHUNK_TOKENS,
    LIMITS,
    RULES,
    SMALL_LIMITS,
    ModelDown,
    note_served,
)
from zae_limiter import Lease, RateLimiter, Repository
from zae_limiter.integrations.asgi import lease_of_scope
from zae_limiter.integrations.fastapi import RateLimitMiddleware, charging


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    repository = await Repository.open(url=os.environ["ZAEL_URL"])
    async with RateLimiter(repository=repository) as limiter:
        await limiter.set_resource_defaults("complete", LIMITS)
        await limiter.set_resource_defaults("small", SMALL_LIMITS)
        app.state.limiter = limiter
        yield


app = FastAPI(lifespan=lifespan)
inner = FastAPI()
app.mount("/inner", inner)
app.add_middleware(
    RateLimitMiddleware,
    limiter=lambda scope: app.state.limiter,
    legacy_fields=True,
    rules=RULES,
)
Charged = Annotated[Lease, Depends(charging(CHARGE))]


@app.get("/health")
@app.get("/small")
@inner.get("/small")
@app.get("/text")
@app.get("/cost")
@app.get("/unconfigured")
async def plain() -> dict[str, bool]:
    return {"ok": True}


@app.get("/answer/{status}")
async def answer_with(status: int, lease: Charged) -> Response:
    return Response(status_code=status)


@app.get("/raise")
async def fail(lease: Charged) -> None:
    raise ModelDown("the model is down")


@app.get("/consume")
async def consume(n: int, lease: Charged) -> dict[str, bool]:
    await lease.consume(tpm=n)
    return {"ok": True}


@app.get("/stream")
async def stream(
    lease: Charged, chunks: int, key: str, fails_after: int = -1, pause_s: float = 0
) -> StreamingResponse:
    if fails_after != 0:
        note_served(key, calls=1)

    async def parts() -> AsyncIterator[bytes]:
        used = 0
        try:
            yield b""  # an empty chunk is not yet a byte
            for number in range(chunks):
                if number == fails_after:
                    raise ModelDown("the model is down")
                await lease.adjust(tpm=CHUNK_TOKENS)
                used += CHUNK_TOKENS
                yield b"x" * 100
                await asyncio.sleep(pause_s)
        finally:
            note_served(key, tokens=used)

    return StreamingResponse(parts())


@app.get("/late-refusal")
async def late_refusal(lease: Charged) -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        await lease.consume(tpm=10**9)
        yield b"never"

    return StreamingResponse(parts())


@app.get("/committed")
async def committed(lease: Charged) -> None:
    await lease.commit(tpm=70)
    raise ModelDown("after the commit")


@app.websocket("/ws/{what}")
async def socket(websocket: WebSocket, what: str, key: str = "") -> None:
    lease = lease_of_scope(websocket.scope)
    assert lease is not None
    if what == "fails":
        raise ModelDown("before it was accepted")
    await websocket.accept()
    async for _ in websocket.iter_text():
        await websocket.send_text("pong")
