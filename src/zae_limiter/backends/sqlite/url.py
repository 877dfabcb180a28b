"""The URL of a store in a SQLite file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import SplitResult, unquote

from ...core.exceptions import ValidationError
from ...ports.io import Io
from ..store_url import OpenRequest, StoreUrl, refuse_extras
from .store import LOCK_WAIT_S, SqliteStore


@dataclass(frozen=True, slots=True)
class SqliteUrl(StoreUrl):
    """A file of this machine."""

    scheme = "sqlite"
    forms = "sqlite:///limits.db (relative), sqlite:////var/lib/limits.db (absolute)"

    @classmethod
    def parse(cls, text: str, parts: SplitResult) -> Self:
        refuse_extras(text, parts)
        if parts.netloc or len(parts.path) < 2:
            raise ValidationError("url", text, f"names no file; it must be like {cls.forms}")
        return cls(text, path=unquote(parts.path[1:]))

    path: str = ""

    async def open(self, io: Io, request: OpenRequest) -> SqliteStore:
        wait_s = self.read_timeout or min(LOCK_WAIT_S, self.patience_s)
        return await SqliteStore.open(
            self.path,
            io,
            create=request.create,
            wait_s=wait_s,
            breaker_failures=self.breaker_failures,
        )
