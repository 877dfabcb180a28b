"""The log of writes that could not be carried out: operators correct by hand what it tells."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...core.bucket import BucketAddress
from ...core.limit import MILLI

logger = logging.getLogger("zae_limiter")


def log_failed_write(
    what: str, deltas_milli: Mapping[str, int], address: BucketAddress, cause: object
) -> None:
    """Log a write that failed, or whose outcome is unknown, with its address and its amounts in
    whole tokens."""
    amounts = ", ".join(f"{delta // MILLI:+d} {name}" for name, delta in deltas_milli.items())
    logger.warning("%s: %s at %s: %s", what, amounts, address, cause)
