"""A provider that answers 429 is not called again before it wants to be.

Its `retry-after` holds all calls of this process to the model: one that has a `timeout` waits, any
other fails at once with `ProviderPaused`, before anything is charged.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from ...core.exceptions import RateLimitError
from ...local.bounded import Bounded

_MAX_MODELS = 10_000
_UNNAMED_WAIT_S = 1.0
_TOO_MANY_REQUESTS = 429
# Both say "not now": unavailable, and overloaded as Anthropic says it.
_BUSY = frozenset({503, 529})


class ProviderPaused(RateLimitError):
    """The provider of a model has asked not to be called for a while. Nothing was charged."""

    def __init__(self, resource: str, retry_after_seconds: float) -> None:
        self.resource = resource
        self.retry_after_seconds = retry_after_seconds
        super().__init__(
            f"The provider of {resource} wants no calls for {retry_after_seconds:.1f}s"
        )


class ProviderPace:
    """The times until which the models of one provider account are held. Clients of the same
    account may share one. `longest_s`: no header can hold a model for longer."""

    def __init__(self, longest_s: float = 60.0) -> None:
        self._longest_s = longest_s
        self._held_until_s: Bounded[str, float] = Bounded(_MAX_MODELS)

    def hold(self, resource: str, seconds: float) -> None:
        """Hold calls to a model. A hold is never shortened by a later, shorter one."""
        until_s = time.monotonic() + min(max(seconds, 0.0), self._longest_s)
        if until_s > (self._held_until_s.get(resource) or 0.0):
            self._held_until_s.put(resource, until_s)

    def wait_s(self, resource: str) -> float:
        """Return the seconds for which a model is still held; 0 if it may be called."""
        until_s = self._held_until_s.get(resource)
        return 0.0 if until_s is None else max(0.0, until_s - time.monotonic())

    def note(self, resource: str, status: int, headers: Mapping[str, str]) -> None:
        """Hold a model if an answer of its provider says so."""
        if status != _TOO_MANY_REQUESTS and status not in _BUSY:
            return
        seconds = _retry_after_s(headers)
        if seconds is None and status == _TOO_MANY_REQUESTS:
            seconds = _UNNAMED_WAIT_S
        if seconds is not None:
            self.hold(resource, seconds)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait that header fields ask for: milliseconds, seconds, or a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        date = parsedate_to_datetime(text)
        # A date without a zone would be taken for local time.
        aware = date if date.tzinfo else date.replace(tzinfo=UTC)
        return aware.timestamp() - time.time()
    except (ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    # A NaN would compare as neither longer nor shorter, and an infinity is no time.
    return number if 0 <= number < float("inf") else None
