"""Token-bucket arithmetic for one limit, for those who compute with bucket states themselves."""

from .core.bucket import (
    ConsumeResult,
    RefillResult,
    build_limit_status,
    calculate_available,
    calculate_retry_after,
    force_consume,
    refill_bucket,
    try_consume,
    would_refill_satisfy,
)

__all__ = [
    "ConsumeResult",
    "RefillResult",
    "build_limit_status",
    "calculate_available",
    "calculate_retry_after",
    "force_consume",
    "refill_bucket",
    "try_consume",
    "would_refill_satisfy",
]
