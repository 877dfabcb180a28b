"""One route, limited by each limiter's way of doing so in FastAPI and in Flask.

Limits are per minute, by the client's address, and so large that they never bind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from flask import Flask

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.integrations import Rule

LIMIT = 1_000_000_000
_RULE = Rule("api", path="/limited")
Asgi = Callable[[Any, Any, Any], Any]
Wsgi = Callable[[Any, Any], Iterable[bytes]]


def _limits() -> list[Limit]:
    return [Limit.per_minute("requests", LIMIT)]


def fastapi_app() -> Any:
    app = FastAPI()

    @app.get("/limited")
    async def answer() -> dict[str, bool]:
        return {"ok": True}

    return app


def fastapi_ours(loop: asyncio.Runner, url: str) -> Asgi:
    from zae_limiter.integrations.asgi import RateLimitMiddleware

    limiter = RateLimiter(repository=loop.run(Repository.open(url=url)))
    loop.run(limiter.set_system_defaults(_limits()))
    return RateLimitMiddleware(fastapi_app(), limiter, [_RULE])


def fastapi_slowapi(url: str) -> Asgi:
    from slowapi import Limiter
    from slowapi.util import get_remote_address

    limiter = Limiter(key_func=get_remote_address, headers_enabled=True, storage_uri=url)
    app = FastAPI()
    app.state.limiter = limiter

    @app.get("/limited")
    @limiter.limit(f"{LIMIT}/minute")  # type: ignore[untyped-decorator]
    async def answer(request: Request, response: Response) -> dict[str, bool]:
        return {"ok": True}

    return app


def fastapi_fastapi_limiter() -> Asgi:
    from fastapi_limiter.depends import RateLimiter as FastapiLimiter
    from pyrate_limiter import Duration, InMemoryBucket, Limiter, Rate

    app = FastAPI()
    # Its log holds an entry for each request of the last minute: the bound keeps it from growing.
    dependency = FastapiLimiter(Limiter(InMemoryBucket([Rate(LIMIT, Duration.SECOND)])))

    @app.get("/limited", dependencies=[Depends(dependency)])
    async def answer() -> dict[str, bool]:
        return {"ok": True}

    return app


def fastapi_throttled(url: str) -> Asgi:
    from throttled.asyncio import (
        MemoryStore,
        RateLimiterType,
        RedisStore,
        Throttled,
        rate_limiter,
    )

    quota = rate_limiter.per_min(LIMIT)
    store = MemoryStore() if url == "memory://" else RedisStore(server=url)
    throttled = Throttled(using=RateLimiterType.TOKEN_BUCKET.value, quota=quota, store=store)

    async def dependency(request: Request) -> None:
        found = await throttled.limit(request.client.host if request.client else "")
        if found.limited:
            raise HTTPException(429)

    app = FastAPI()

    @app.get("/limited", dependencies=[Depends(dependency)])
    async def answer() -> dict[str, bool]:
        return {"ok": True}

    return app


def flask_app() -> Any:
    app = Flask(__name__)

    @app.get("/limited")
    def answer() -> dict[str, bool]:
        return {"ok": True}

    return app


def flask_ours(url: str) -> Wsgi:
    from zae_limiter.integrations.flask import RateLimits

    limiter = SyncRateLimiter(repository=SyncRepository.open(url=url))
    limiter.set_system_defaults(_limits())
    app = flask_app()
    RateLimits(limiter, [_RULE]).init_app(app)
    return app.wsgi_app  # type: ignore[no-any-return]


def flask_flask_limiter(url: str) -> Wsgi:
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    app = flask_app()
    Limiter(
        get_remote_address,
        app=app,
        default_limits=[f"{LIMIT}/minute"],
        storage_uri=url,
        headers_enabled=True,
    )
    return app.wsgi_app  # type: ignore[no-any-return]
