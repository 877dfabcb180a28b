"""The FastAPI gateway inside middleware that copies streams."""

from __future__ import annotations

from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from tests.integrations.asgi_gateway import app as gateway


async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
    return await call_next(request)


app = BaseHTTPMiddleware(gateway, dispatch=pass_on)
