"""This module is the port to a store that lives in a table of its own.

A store in memory or in a file is created when it is opened, and has no parts whose versions could
differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version record holds the versions of a table's schema and Lambda, and of the oldest client
    that the table lets in."""

    schema_version: str
    lambda_version: str | None = None
    client_min_version: str = "0.0.0"
    updated_at: str | None = None
    updated_by: str | None = None


class Versions(Protocol):
    """The role of the version record, of which a table has one."""

    async def read(self) -> VersionRecord | None:
        """Return the record; None when no client has written it."""

    async def write(self, record: VersionRecord) -> None:
        """Replace the record. The time of the change is now."""


@runtime_checkable
class DeployedStore(Protocol):
    """A deployed store lives in a table that can be created and deleted."""

    @property
    def versions(self) -> Versions:
        """The version record."""

    @property
    def opened_version(self) -> VersionRecord | None:
        """The version record as it was when the store was opened."""

    async def create_table(self) -> None:
        """Create the table if there is none, and wait until it can be used."""

    async def delete_table(self) -> None:
        """Delete the table and all its data, if there is one, and wait until it is gone."""
