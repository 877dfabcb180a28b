"""A backoff says how often and after which delays a request is sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Backoff:
    """A backoff bounds the number of retries, each delay (doubling up to a ceiling), the sum of
    delays, and the time after which no retry begins."""

    retries: int = 3
    base_s: float = 0.05
    ceiling_s: float = 0.5
    total_s: float = 1.0
    deadline_s: float = 5.0

    @property
    def patient(self) -> Backoff:
        """Return a backoff with more retries, for a server that answers that it is busy."""
        return replace(self, retries=2 * self.retries, total_s=2 * self.total_s)


def delays(backoff: Backoff, entropy: Callable[[], int]) -> Iterator[float]:
    """Yield the seconds to wait before each retry, with full jitter: clients that failed
    together do not come back together."""
    left_s = backoff.total_s
    for attempt in range(backoff.retries):
        step_s = min(backoff.ceiling_s, backoff.base_s * 2**attempt)
        delay_s = min(left_s, step_s * _fraction(entropy()))
        left_s -= delay_s
        yield delay_s


def _fraction(entropy: int) -> float:
    """Return a fraction from 0 to 1, made of the low bits: the high bits may be a counter."""
    return (entropy & 0xFFFF_FFFF) / 0xFFFF_FFFF
