"""Choosing a store by URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from ..core.exceptions import ValidationError
from ..ports.io import Io
from ..ports.repository_protocol import RepositoryProtocol

Scheme = Literal["memory", "sqlite"]
_FORMS = "memory://, sqlite:///limits.db (relative) or sqlite:////var/lib/limits.db (absolute)"


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A URL, understood. `path` is the file of a SQLite store."""

    text: str
    scheme: Scheme
    path: str = ""

    @property
    def is_embedded(self) -> bool:
        """True for a store with one connection: running calls in parallel gains nothing."""
        return True


def parse_url(text: str) -> StoreUrl:
    """Understand a URL, or say which forms there are."""
    if not isinstance(text, str):
        raise ValidationError("url", text, f"must be a string such as {_FORMS}")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ValidationError("url", text, str(error)) from error
    if parts.query or parts.fragment:
        raise ValidationError("url", text, "takes no query and no fragment")
    if parts.scheme == "memory" and not parts.netloc and parts.path in ("", "/"):
        return StoreUrl(text, "memory")
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        return StoreUrl(text, "sqlite", unquote(parts.path[1:]))
    raise ValidationError("url", text, f"is none of {_FORMS}")


async def open_store(url: StoreUrl, io: Io, *, create: bool) -> RepositoryProtocol:
    """Open the store that a URL names; `create` makes it when it does not exist."""
    if url.scheme == "memory":
        from .memory import MemoryStore

        return MemoryStore()
    from .sqlite import SqliteStore

    return await SqliteStore.open(url.path, io, create=create)
