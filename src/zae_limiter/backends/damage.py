"""What a list does about a record that cannot be read: it says so, and goes on."""

from __future__ import annotations

import warnings

from ..core.exceptions import StoredDataError, StoredDataWarning


def leave_out(error: StoredDataError) -> None:
    """Warn that a record is missing from a list, and why."""
    warnings.warn(StoredDataWarning(error), stacklevel=3)
