"""This module signs a single request, as the transport does for many."""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.backends.dynamodb.wire.signer import Credentials, make_stamp


def sign(
    credentials: Credentials,
    region: str,
    host: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    at_s: float,
) -> dict[str, str]:
    """Return the given headers (in lower case) and the headers that sign them."""
    stamp = make_stamp(credentials, region, host, path, headers, int(at_s))
    return {**stamp.sent, "authorization": stamp.proof + stamp.signature(body)}
