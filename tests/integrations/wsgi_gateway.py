"""The gateway without a framework: `waitress-serve tests.integrations.wsgi_gateway:app`."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

from tests.integrations.gateway_rules import CHARGE, PLAIN, RULES
from tests.integrations.sync_gateway import open_limiter, parts, refused_parts, work
from zae_limiter.integrations import Rule
from zae_limiter.integrations.wsgi import (
    Environ,
    StartResponse,
    WsgiRateLimitMiddleware,
    lease_of_environ,
)

CHARGED = ("/answer/*", "/raise", "/committed", "/consume", "/stream", "/late-refusal")


def gateway(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    path, query = environ["PATH_INFO"], dict(parse_qsl(environ["QUERY_STRING"]))
    if path in PLAIN:
        return whole(start_response, 200, b"ok")
    lease = lease_of_environ(environ)
    if lease is None:
        return whole(start_response, 404, b"")
    if path == "/stream":
        start_response("200 OK", [])
        return parts(lease, query)
    if path == "/late-refusal":
        start_response("200 OK", [])
        return refused_parts(lease)
    if path.startswith("/answer/"):
        return whole(start_response, int(path.removeprefix("/answer/")), b"")
    return whole(start_response, 200, work(query.get("n") or path[1:], lease))


def whole(start_response: StartResponse, status: int, body: bytes) -> list[bytes]:
    start_response(f"{status} As Asked", [("Content-Length", str(len(body)))])
    return [body]


app = WsgiRateLimitMiddleware(
    gateway,
    open_limiter(),
    [*RULES, Rule("complete", key=CHARGE.key, cost=CHARGE.cost, path=CHARGED)],
    legacy_fields=True,
)
