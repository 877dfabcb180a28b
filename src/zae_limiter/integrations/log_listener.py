"""A listener that logs acquires, with fields that programs can read.

limiter.repository.listen(LogListener())
"""

from __future__ import annotations

import logging
from time import perf_counter

from ..core.events import AcquireEvent, AcquireOutcome, LostWrite
from ..core.log_fields import log_fields
from ..core.rate_limit_exceeded import RateLimitExceeded

logger = logging.getLogger("zae_limiter.acquires")


class LogListener:
    """A listener that logs each acquire: at DEBUG if it was admitted, else at INFO."""

    def acquire_began(self, event: AcquireEvent) -> tuple[AcquireEvent, float]:
        """Note the time."""
        return event, perf_counter()

    def acquire_ended(self, begun: tuple[AcquireEvent, float], outcome: AcquireOutcome) -> None:
        """Log how the acquire ended."""
        level = logging.DEBUG if outcome.ending == "admitted" else logging.INFO
        if not logger.isEnabledFor(level):
            return
        event, began_s = begun
        error = outcome.error
        wait_s = error.retry_after_seconds if isinstance(error, RateLimitExceeded) else None
        about = log_fields(
            "acquire",
            outcome=outcome.ending,
            namespace=event.namespace,
            entity_id=event.entity_id,
            resource=event.resource,
            consume=event.consume,
            seconds=perf_counter() - began_s,
            retry_after_seconds=wait_s,
        )
        text = "acquire of %s/%s: %s"
        logger.log(level, text, event.entity_id, event.resource, outcome.ending, extra=about)

    def write_lost(self, lost: LostWrite) -> None:
        """Log nothing: the limiter itself logs lost writes."""
