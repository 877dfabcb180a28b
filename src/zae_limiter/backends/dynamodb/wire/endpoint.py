"""An endpoint says where requests go, and through which proxy."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from ....core.exceptions import ValidationError
from .proxy import Proxy

_DEFAULT_PORTS = {"http": 80, "https": 443}
_BOTOCORE_SAYS = "Invalid endpoint:"
_SAFE_IN_PATH = "/%~!$&'()*+,;=:@"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint is the address of a DynamoDB, with the trust for TLS and the proxy on the way.

    `host` stands in the Host header and in the signature.
    """

    scheme: str
    host: str
    path: str
    tls: ssl.SSLContext | None = None
    proxy: Proxy | None = None

    @property
    def origin(self) -> str:
        """Return scheme, host and port."""
        return f"{self.scheme}://{self.host}"

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port to connect to."""
        parts = urlsplit(self.origin)
        return parts.hostname or "", parts.port or _DEFAULT_PORTS[self.scheme]

    @property
    def tunnel(self) -> Proxy | None:
        """Return the proxy if it must open tunnels, as it must to an endpoint with TLS."""
        return self.proxy if self.tls is not None else None

    @property
    def forwarder(self) -> Proxy | None:
        """Return the proxy if it forwards requests, as it does to an endpoint without TLS."""
        return self.proxy if self.tls is None else None

    @property
    def request_target(self) -> str:
        """Return the target of a request line: the whole URL for a proxy that forwards."""
        return self.origin + self.path if self.forwarder else self.path

    def __str__(self) -> str:
        return f"{self.host} through the proxy {self.proxy}" if self.proxy else self.host


def parse_endpoint(url: str) -> Endpoint:
    """Read an endpoint URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Without its message: that may show a part of a password as a port.
        raise _no_endpoint(url) from None
    extra = parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or extra:
        raise _no_endpoint(url)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{port}"
    return Endpoint(parts.scheme, host, _normal_path(parts.path))


@contextmanager
def endpoint_of_environment() -> Iterator[None]:
    """Report an endpoint that botocore found in the environment or in a profile, and cannot use."""
    try:
        yield
    except ValueError as error:
        told = str(error)
        if not told.startswith(_BOTOCORE_SAYS):
            raise
        # Without the cause: its message may show a password.
        raise _no_endpoint(told.removeprefix(_BOTOCORE_SAYS).strip()) from None


def _no_endpoint(url: str) -> ValidationError:
    *userinfo, rest = str(url).rsplit("@", 1)
    scheme = "".join(str(url).partition("://")[:2]) if "://" in str(url) else ""
    shown = f"{scheme}***@{rest}" if userinfo else rest
    return ValidationError("endpoint_url", shown, "must be like https://host or http://host:8000")


def _normal_path(path: str) -> str:
    """Drop empty and dot segments, as the service does when it checks a signature."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    closing = "/" if kept and path.endswith("/") else ""
    return quote("/" + "/".join(kept) + closing, safe=_SAFE_IN_PATH)
