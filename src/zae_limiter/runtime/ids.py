"""This module makes ids of this process differ from those of every other process."""

from __future__ import annotations

import itertools
import os
import secrets

from ..local.fork_safety import forget_other_threads

_CLIENT_DIGITS = 5


def _new_client() -> str:
    return secrets.token_hex(_CLIENT_DIGITS)[:_CLIENT_DIGITS]


_client = _new_client()
_numbers = itertools.count()


def unique_suffix() -> str:
    """Return a suffix that makes an id which begins with the time in milliseconds unique. It is
    short, because a bucket item remembers four ids and should not become larger with time."""
    return f"{_client}{next(_numbers) & 0xFFFF:x}"


def rising_entropy() -> int:
    """Return 80 bits: 16 that count up, so that ids of one millisecond keep their order, and 64
    random."""
    return (next(_numbers) & 0xFFFF) << 64 | secrets.randbits(64)


def _become_another_client() -> None:
    global _client
    _client = _new_client()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_become_another_client)
    os.register_at_fork(after_in_child=forget_other_threads)
