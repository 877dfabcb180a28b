"""AWS Signature Version 4 for a POST to DynamoDB, as a function."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote


class Credentials(NamedTuple):
    """A key pair, with the token that temporary ones have."""

    access_key: str
    secret_key: str
    token: str | None = None


def sign(
    credentials: Credentials,
    region: str,
    host: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    at_s: float,
) -> dict[str, str]:
    """The headers to send: those given (in lower case), and those that prove who sends them."""
    moment = _moment(int(at_s))
    day = moment[:8]
    frame = _frame(path, host, credentials.token, tuple(headers.items()))
    request = f"{frame.before}{moment}{frame.after}{sha256(body).hexdigest()}"
    scope = f"{day}/{region}/dynamodb/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    signature = _mac(_signing_key(credentials.secret_key, day, region), text).hex()
    return {
        **frame.sent,
        "x-amz-date": moment,
        "authorization": (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope},"
            f" SignedHeaders={frame.names}, Signature={signature}"
        ),
    }


class _Frame(NamedTuple):
    """What requests to one operation have in common: the headers that are sent with each, and
    the text that is signed, before and after the moment, up to the digest of the body."""

    sent: dict[str, str]
    names: str
    before: str
    after: str


@lru_cache(maxsize=64)
def _frame(path: str, host: str, token: str | None, headers: tuple[tuple[str, str], ...]) -> _Frame:
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
def _moment(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))


@lru_cache(maxsize=8)
def _signing_key(secret_key: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, "dynamodb", "aws4_request"):
        key = _mac(key, part)
    return key


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
