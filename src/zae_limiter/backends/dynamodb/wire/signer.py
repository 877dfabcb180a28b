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
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))
    day = moment[:8]
    sent = {**headers, "host": host, "x-amz-date": moment}
    if credentials.token:
        sent["x-amz-security-token"] = credentials.token
    names = sorted(sent)
    signed_names = ";".join(names)
    lines = [f"{name}:{' '.join(sent[name].split())}" for name in names]
    digest = sha256(body).hexdigest()
    request = "\n".join(("POST", _canonical(path), "", *lines, "", signed_names, digest))
    scope = f"{day}/{region}/dynamodb/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    key = _signing_key(credentials.secret_key, day, region)
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope},"
        f" SignedHeaders={signed_names}, Signature={_mac(key, text).hex()}"
    )
    return sent


def _canonical(path: str) -> str:
    return path if path == "/" else quote(path, safe="/~")


@lru_cache(maxsize=8)
def _signing_key(secret_key: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, "dynamodb", "aws4_request"):
        key = _mac(key, part)
    return key


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
