"""The applications under test share rules, limits, and a log of what they served."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from zae_limiter import Limit
from zae_limiter.integrations import Rule, by_header, exempt

CHUNK_TOKENS = 10
# They gain a token in many days, so that what is missing is what was charged.
_SLOW_SECONDS = 10**8
REQUESTS, TOKENS = 300, 50_000
LIMITS = [
    Limit("rpm", REQUESTS, 1, _SLOW_SECONDS),
    Limit("tpm", TOKENS, 1, _SLOW_SECONDS),
]
SMALL_LIMITS = [Limit("rpm", 2, 1, 60)]
KEY = by_header("x-api-key")
RULES = [
    exempt("/health"),
    Rule("small", key=KEY, cost={"rpm": 1}, path=["/small", "/inner/small", "/ws/*"]),
    Rule("text", key=KEY, limits="3/minute; burst 1", path="/text"),
    Rule(
        "small",
        key=KEY,
        path="/cost",
        cost=lambda call: {"rpm": int(call.query.removeprefix("n="))},
    ),
    Rule("unknown", key=KEY, path="/unconfigured"),
]
PLAIN = ("/health", "/small", "/text", "/cost", "/unconfigured")
CHARGE = Rule("complete", key=KEY, cost={"rpm": 1, "tpm": 0})


class ModelDown(Exception):
    """What a handler fails with."""


def note_served(key: str, *, calls: int = 0, tokens: int = 0) -> None:
    """Note that calls of `key` were served, or how many tokens one really used."""
    line = f"{key} {calls} {tokens}\n".encode()
    log = os.open(os.environ["SERVED_LOG"], os.O_APPEND | os.O_WRONLY | os.O_CREAT)
    try:
        os.write(log, line)
    finally:
        os.close(log)


def read_log(path: Path) -> tuple[Counter[str], Counter[str]]:
    """The calls and the tokens that were served, by key."""
    calls: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for line in path.read_text().splitlines() if path.exists() else ():
        key, more_calls, more_tokens = line.split()
        calls[key] += int(more_calls)
        tokens[key] += int(more_tokens)
    return calls, tokens
