"""Pauses after lost races."""

from __future__ import annotations

from ..scope import Scope

_LONGEST_NAP_MS = 128


async def step_back(scope: Scope, lost: int) -> None:
    """Wait a random while, longer the more races were lost, so that not all who lost one meet
    again in the next."""
    longest_ms = min(_LONGEST_NAP_MS, 1 << min(lost, 10))
    await scope.io.pause(scope.io.entropy() % (longest_ms * 1000) / 1_000_000)
