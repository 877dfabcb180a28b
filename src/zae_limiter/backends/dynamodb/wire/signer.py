"""The signer computes AWS Signature Version 4 for POST requests to DynamoDB."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from hashlib import _Hash

_Headers = tuple[tuple[str, str], ...]


class Credentials(NamedTuple):
    """Credentials are a key pair, with a token if they are temporary."""

    access_key: str
    secret_key: str
    token: str | None = None


class Stamp(NamedTuple):
    """A stamp holds the part of the signature that all requests of an operation share for a second.

    `sent` are headers, `proof` is the authorization header up to the signature, `request` is the
    digest of the canonical request up to the body, `inner` and `outer` are the HMAC's digests.
    """

    sent: dict[str, str]
    proof: str
    request: _Hash
    inner: _Hash
    outer: _Hash

    def signature(self, body: bytes) -> str:
        """Return the signature of a request with this body."""
        request, inner, outer = self.request.copy(), self.inner.copy(), self.outer.copy()
        request.update(sha256(body).hexdigest().encode())
        inner.update(request.hexdigest().encode())
        outer.update(inner.digest())
        return outer.hexdigest()


def make_stamp(
    credentials: Credentials,
    region: str,
    host: str,
    path: str,
    headers: Mapping[str, str],
    second: int,
) -> Stamp:
    """Build the stamp of requests with these headers (in lower case)."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
    day = moment[:8]
    scope = f"{day}/{region}/dynamodb/aws4_request"
    frame = _frame(path, host, credentials.token, tuple(headers.items()))
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n"
    key = _signing_key(credentials.secret_key, day, region).ljust(sha256().block_size, b"\0")
    return Stamp(
        {**frame.sent, "x-amz-date": moment},
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope},"
        f" SignedHeaders={frame.names}, Signature=",
        sha256(f"{frame.before}{moment}{frame.after}".encode()),
        sha256(key.translate(hmac.trans_36) + text.encode()),
        sha256(key.translate(hmac.trans_5C)),
    )


class _Frame(NamedTuple):
    """A frame holds the part of a stamp that does not change with time: headers, their names, and
    the canonical request before and after the date, up to the digest of the body."""

    sent: dict[str, str]
    names: str
    before: str
    after: str


@lru_cache(maxsize=64)
def _frame(path: str, host: str, token: str | None, headers: _Headers) -> _Frame:
    sent = {**dict(headers), "host": host}
    if token:
        sent["x-amz-security-token"] = token
    names = sorted([*sent, "x-amz-date"])
    lines = [f"{name}:{' '.join(sent.get(name, '').split())}" for name in names]
    date = names.index("x-amz-date")
    before = "\n".join(("POST", _canonical(path), "", *lines[: date + 1]))
    after = "\n".join(("", *lines[date + 1 :], "", ";".join(names), ""))
    return _Frame(sent, ";".join(names), before, after)


def _canonical(path: str) -> str:
    return path if path == "/" else quote(path, safe="/~")


@lru_cache(maxsize=8)
def _signing_key(secret_key: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, "dynamodb", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
