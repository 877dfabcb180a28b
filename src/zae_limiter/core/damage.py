"""Records that cannot be read where the others can be."""

from __future__ import annotations

from .exceptions import StoredDataError


class StoredDataWarning(UserWarning):
    """A stored record cannot be understood. It was left as it is, and left out of a list."""

    def __init__(self, error: StoredDataError) -> None:
        self.record = error.record
        self.reason = error.reason
        super().__init__(f"{error}. It was left out.")
