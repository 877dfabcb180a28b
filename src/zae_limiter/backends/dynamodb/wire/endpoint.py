"""Where requests go."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from ....core.exceptions import ValidationError
from .proxy import Proxy

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE_IN_PATH = "/%~!$&'()*+,;=:@"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a DynamoDB, and how to get there: with which trust, through which proxy.

    `host` is what both the Host header and the signature say.
    """

    scheme: str
    host: str
    path: str
    tls: ssl.SSLContext | None = None
    proxy: Proxy | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.host}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to."""
        parts = urlsplit(self.origin)
        return parts.hostname or "", parts.port or _DEFAULT_PORTS[self.scheme]

    @property
    def tunnel(self) -> Proxy | None:
        """The proxy, where it opens tunnels: an endpoint with TLS cannot be had otherwise."""
        return self.proxy if self.tls is not None else None

    @property
    def forwarder(self) -> Proxy | None:
        """The proxy, where it reads and forwards requests: an endpoint without TLS."""
        return self.proxy if self.tls is None else None

    @property
    def request_target(self) -> str:
        """The target of a request line: a proxy that forwards must be told the whole URL."""
        return self.origin + self.path if self.forwarder else self.path

    def __str__(self) -> str:
        return f"{self.host} through the proxy {self.proxy}" if self.proxy else self.host


def parse_endpoint(url: str) -> Endpoint:
    """Understand an endpoint URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValidationError("endpoint_url", url, str(error)) from error
    extra = parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or extra:
        raise ValidationError("endpoint_url", url, "must be like https://host or http://host:8000")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{port}"
    return Endpoint(parts.scheme, host, _normal_path(parts.path))


def _normal_path(path: str) -> str:
    """Without empty and dot segments, as the service sees it when it checks a signature."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    closing = "/" if kept and path.endswith("/") else ""
    return quote("/" + "/".join(kept) + closing, safe=_SAFE_IN_PATH)
