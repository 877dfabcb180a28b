"""The URL of a store in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import SplitResult

from ...core.exceptions import ValidationError
from ...ports.io import Io
from ..store_url import OpenRequest, StoreUrl, refuse_extras
from .store import MemoryStore


@dataclass(frozen=True, slots=True)
class MemoryUrl(StoreUrl):
    """A new store in this process, with nothing in it."""

    scheme = "memory"
    forms = "memory://"

    @classmethod
    def parse(cls, text: str, parts: SplitResult) -> Self:
        refuse_extras(text, parts)
        if parts.netloc or parts.path not in ("", "/"):
            raise ValidationError("url", text, f"must be {cls.forms}, which names nothing else")
        return cls(text)

    async def open(self, io: Io, request: OpenRequest) -> MemoryStore:
        return MemoryStore()
