"""What a store can do that lives in a table of its own. One in memory or in a file is made when
it is opened, and has no parts whose versions could differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """The versions of a table's schema and Lambda, and of the oldest client it lets in."""

    schema_version: str
    lambda_version: str | None = None
    client_min_version: str = "0.0.0"
    updated_at: str | None = None
    updated_by: str | None = None


class Versions(Protocol):
    """The one version record of a table."""

    async def read(self) -> VersionRecord | None:
        """The record; None when nobody has written it."""

    async def write(self, record: VersionRecord) -> None:
        """Replace the record. The time of the change is now."""


@runtime_checkable
class DeployedStore(Protocol):
    """A store in a table that can be made and deleted."""

    @property
    def versions(self) -> Versions:
        """The version record."""

    async def create_table(self) -> None:
        """Make the table if there is none, and wait until it can be used."""

    async def delete_table(self) -> None:
        """Delete the table and all that is in it, if there is one, and wait until it is gone."""
