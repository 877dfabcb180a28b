"""A list leaves out a record that cannot be read, and warns."""

from __future__ import annotations

import warnings

from ..core.exceptions import StoredDataError, StoredDataWarning


def leave_out(error: StoredDataError) -> None:
    """Warn that a record is missing from a list, and why."""
    warnings.warn(StoredDataWarning(error), stacklevel=3)
