"""What the blocking gateways do, whatever their framework."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from tests.integrations.gateway_rules import (
    CHUNK_TOKENS,
    LIMITS,
    SMALL_LIMITS,
    ModelDown,
    note_served,
)
from zae_limiter import SyncLease, SyncRateLimiter, SyncRepository


def open_limiter() -> SyncRateLimiter:
    limiter = SyncRateLimiter(repository=SyncRepository.open(url=os.environ["ZAEL_URL"]))
    limiter.set_resource_defaults("complete", LIMITS)
    limiter.set_resource_defaults("small", SMALL_LIMITS)
    return limiter


def work(what: str, lease: SyncLease) -> bytes:
    """The work of a view that does not stream."""
    if what == "raise":
        raise ModelDown
    if what == "committed":
        lease.commit(tpm=70)
        raise ModelDown
    lease.consume(tpm=int(what))
    return b"ok"


def parts(lease: SyncLease, query: Mapping[str, str]) -> Iterator[bytes]:
    """The work of a view that streams. One that fails before its first chunk serves nobody."""
    fails_after = int(query.get("fails_after", "-1"))
    if fails_after != 0:
        note_served(query["key"], calls=1)
    return _parts(lease, query, fails_after)


def _parts(lease: SyncLease, query: Mapping[str, str], fails_after: int) -> Iterator[bytes]:
    used = 0
    try:
        yield b""  # an empty chunk is not yet a byte
        for number in range(int(query["chunks"])):
            if number == fails_after:
                raise ModelDown
            lease.adjust(tpm=CHUNK_TOKENS)
            used += CHUNK_TOKENS
            yield b"x" * 100
            time.sleep(float(query.get("pause_s", "0")))
    finally:
        note_served(query["key"], tokens=used)


def refused_parts(lease: SyncLease) -> Iterator[bytes]:
    """A stream whose first chunk is above the limit."""
    lease.consume(tpm=10**9)
    yield b"never"
