"""The log of writes that could not be carried out: operators correct by hand what it tells."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...core.bucket import BucketAddress
from ...core.limit import MILLI
from ...core.log_fields import log_fields

logger = logging.getLogger("zae_limiter")


def log_failed_write(
    what: str, deltas_milli: Mapping[str, int], address: BucketAddress, cause: object
) -> None:
    """Log a write that failed, or whose outcome is unknown, with its address and its amounts in
    whole tokens."""
    amounts = {name: delta // MILLI for name, delta in deltas_milli.items()}
    shown = ", ".join(f"{amount:+d} {name}" for name, amount in amounts.items())
    about = log_fields("failed_write", address=address, amounts=amounts, error=cause)
    logger.warning("%s: %s at %s: %s", what, shown, address, cause, extra=about)
