"""This module reads proxy URLs, and writes and reads the `CONNECT` exchange, without any I/O.

A proxy forwards requests to a plain endpoint, and reads them. To a TLS endpoint it opens a
tunnel, and passes bytes that it cannot read.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from ....core.exceptions import StorageUnavailable, ValidationError
from .errors import hopeless, unsent
from .http1 import LONGEST_HEAD_BYTES, Malformed, parse_head, request_head

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PASSING_STATUSES = (408, 429)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy has an address, `tls` if its URL begins with https, and headers with credentials."""

    address: tuple[str, int]
    tls: ssl.SSLContext | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return _authority(self.address)


class ProxyRefused(Exception):
    """A proxy answered `CONNECT` with another status than success."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        advice = ": check the user and password in the proxy's URL" if self.status == 407 else ""
        return f"the proxy opens no tunnel and answers with status {self.status}{advice}"


def proxy_refused(message: str, error: BaseException) -> StorageUnavailable:
    """Build the error for a refused tunnel: only an overloaded proxy is worth a retry."""
    status = error.status if isinstance(error, ProxyRefused) else 0
    return (unsent if status >= 500 or status in _PASSING_STATUSES else hopeless)(message, error)


def parse_proxy(url: str, ca_bundle: str) -> Proxy:
    """Read a proxy URL. Without a scheme it means http, as for botocore and curl."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url.removeprefix('//')}")
        default_port = _DEFAULT_PORTS[parts.scheme]
        host, port = parts.hostname, parts.port or default_port
    except (KeyError, ValueError):
        host, port = None, 0
    if not host:
        # Without this cut, the error would show the password.
        shown = url.rpartition("@")[2]
        raise ValidationError("proxy", shown, "must be like http://host:3128 or https://host")
    tls = _trust(ca_bundle) if parts.scheme == "https" else None
    return Proxy((host, port), tls, _credentials(parts))


def _trust(ca_bundle: str) -> ssl.SSLContext:
    """Trust the authorities of AWS calls and of the system, which knows a company's proxy."""
    context = ssl.create_default_context(cafile=ca_bundle)
    context.load_default_certs()
    return context


def _credentials(parts: SplitResult) -> dict[str, str]:
    if not parts.username and not parts.password:
        return {}
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    # A byte of the environment that is not UTF-8 arrives as a surrogate, and leaves as that byte.
    encoded = pair.encode("utf-8", "surrogateescape")
    return {"proxy-authorization": f"Basic {b64encode(encoded).decode()}"}


def _authority(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect_request(proxy: Proxy, address: tuple[str, int]) -> bytes:
    """Write the request that asks a proxy for a tunnel to an address."""
    authority = _authority(address)
    head = request_head(authority, {"host": authority, **proxy.headers}, method="CONNECT")
    return head + b"\r\n\r\n"


def is_tunnel_open(received: bytes) -> bool:
    """Tell by all bytes of a proxy's answer whether its tunnel is open; False if more must come.

    Raises `ProxyRefused` or `Malformed`. Bytes after the head are malformed: a TLS endpoint does
    not speak first, so the proxy itself would have sent them.
    """
    status, rest = 100, received
    while status < 200:
        head, end, rest = rest.partition(b"\r\n\r\n")
        if len(received) - len(rest) > LONGEST_HEAD_BYTES:
            raise Malformed("the proxy's answer has an endless head")
        if not end:
            return False
        status = parse_head(head).status
    if status >= 300:
        raise ProxyRefused(status)
    if rest:
        raise Malformed("the proxy says more than that the tunnel is open")
    return True
