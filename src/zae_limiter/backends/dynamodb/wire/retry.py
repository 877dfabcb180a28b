"""How long to wait before a call is sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Backoff:
    """At most so many retries, after waits that double up to a ceiling and have a total; and
    none that would begin later than `deadline_s` after the call."""

    retries: int = 3
    base_s: float = 0.05
    ceiling_s: float = 0.5
    total_s: float = 1.0
    deadline_s: float = 5.0

    @property
    def patient(self) -> Backoff:
        """For what is there and busy: it will do later."""
        return replace(self, retries=2 * self.retries, total_s=2 * self.total_s)


def delays(backoff: Backoff, entropy: Callable[[], int]) -> Iterator[float]:
    """Seconds to wait before each retry: anything from nothing to the current step, so that
    clients which failed together do not come back together."""
    left_s = backoff.total_s
    for attempt in range(backoff.retries):
        step_s = min(backoff.ceiling_s, backoff.base_s * 2**attempt)
        delay_s = min(left_s, step_s * _fraction(entropy()))
        left_s -= delay_s
        yield delay_s


def _fraction(entropy: int) -> float:
    """From 0 to 1. The low bits, because the high ones may be a counter."""
    return (entropy & 0xFFFF_FFFF) / 0xFFFF_FFFF
