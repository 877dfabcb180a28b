"""The error for a framework that is not installed."""

from __future__ import annotations


def missing_extra(extra: str) -> ImportError:
    """Return the error that names the extra to install."""
    return ImportError(f"{extra} is not installed: pip install 'zae-limiter[{extra}]'")
