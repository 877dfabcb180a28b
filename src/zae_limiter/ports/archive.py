"""This module is the port to a place where objects are kept for long, such as a bucket of S3."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ArchiveObject(NamedTuple):
    """An archive object is a gzip file of JSON lines, and its key."""

    key: str
    content: bytes


class Archive(Protocol):
    """The role of an archive."""

    async def put(self, archived: ArchiveObject) -> None:
        """Store the object, or replace the one that has the key. Raises `StorageUnavailable`."""
