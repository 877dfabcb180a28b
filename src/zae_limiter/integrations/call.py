"""A call is one HTTP request or WebSocket as rules see it, whatever the framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.exceptions import InvalidIdentifierError


@dataclass(frozen=True, slots=True)
class Call:
    """A call has a method (`WEBSOCKET` for a WebSocket), the whole path, headers by names in lower
    case, and the address of its client. `raw`: the framework's own request, ASGI scope or WSGI
    environment."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    address: str | None
    raw: Any


KeyFunction = Callable[[Call], str]


def call_of_asgi(scope: Mapping[str, Any]) -> Call:
    """Return the call that an ASGI scope describes."""
    client = scope.get("client")
    return Call(
        scope.get("method", "WEBSOCKET"),
        scope["path"],
        scope.get("query_string", b"").decode("latin-1"),
        _joined(scope["headers"]),
        client[0] if client else None,
        scope,
    )


def _joined(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name. Fields of one name are joined, as WSGI servers do: whoever sends two
    keys must not have one of them authenticated, and the other charged."""
    headers: dict[str, str] = {}
    for name, value in fields:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def call_of_wsgi(environ: Mapping[str, Any], raw: Any = None) -> Call:
    """Return the call that a WSGI environment describes."""
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return Call(
        environ["REQUEST_METHOD"],
        path.encode("latin-1", "replace").decode("utf-8", "replace"),
        environ.get("QUERY_STRING", ""),
        {k[5:].replace("_", "-").lower(): v for k, v in environ.items() if k.startswith("HTTP_")},
        environ.get("REMOTE_ADDR"),
        environ if raw is None else raw,
    )


def by_address(call: Call) -> str:
    """Return the client's address as entity id, such as `ip:192.0.2.1`. Behind a proxy, let the
    server set the address from the proxy's header."""
    if not call.address:
        raise InvalidIdentifierError("entity_id", None, "the client has no address")
    return f"ip:{call.address.partition('%')[0]}"


def by_header(name: str, otherwise: KeyFunction | None = None) -> KeyFunction:
    """Return a function that takes the entity id from a header. A call without the header is
    answered with 400, or gets its id from `otherwise`."""
    wanted = name.lower()

    def key(call: Call) -> str:
        value = call.headers.get(wanted)
        if value is not None:
            return value
        if otherwise is not None:
            return otherwise(call)
        raise InvalidIdentifierError("entity_id", None, f"the header {name} is missing")

    return key
