"""A store URL names a store. Each store's package has its own kind, in a module `url`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self
from urllib.parse import SplitResult

from ..core.exceptions import ValidationError
from ..ports.io import Io
from ..ports.repository_protocol import RepositoryProtocol

USUAL_TOTAL_S = 5.0
"""The seconds that a store call takes at most, with all its retries, unless others are chosen."""

USUAL_FAILURES = 5
"""The number of failures in a row after which the breaker of a store opens."""


class OpenRequest(NamedTuple):
    """A wish to open a store. Each store heeds what concerns it.

    `create`: create the store if it is missing. `create_table`: even where that costs money.
    `blocking`: the driver is the blocking one. `transport`: how the server is spoken to.
    """

    create: bool
    blocking: bool = True
    create_table: bool = False
    transport: str | None = None


TRANSPORTS = ("wire", "botocore")


@dataclass(frozen=True, slots=True)
class StoreUrl(ABC):
    """A URL that has been understood.

    `forms`: how such URLs look. `is_embedded`: the store has one connection, and running calls
    in parallel gains nothing.
    """

    scheme: ClassVar[str]
    forms: ClassVar[str]
    is_embedded: ClassVar[bool] = True

    text: str
    region: str | None = None
    endpoint_url: str | None = None
    connect_timeout: float | None = None
    read_timeout: float | None = None
    total_timeout: float | None = None
    breaker_failures: int = USUAL_FAILURES

    @classmethod
    @abstractmethod
    def parse(cls, text: str, parts: SplitResult) -> Self:
        """Understand a URL of this scheme, or raise `ValidationError`."""

    @abstractmethod
    async def open(self, io: Io, request: OpenRequest) -> RepositoryProtocol:
        """Open the store."""

    @property
    def name(self) -> str:
        """The name of the store in messages and records."""
        return self.text

    def with_timeouts(
        self, connect: float | None, read: float | None, total: float | None = None
    ) -> Self:
        """Replace the timeouts of the URL by those that are given, in seconds."""
        return replace(
            self,
            connect_timeout=check_store_timeout("connect_timeout", connect) or self.connect_timeout,
            read_timeout=check_store_timeout("read_timeout", read) or self.read_timeout,
            total_timeout=check_store_timeout("total_timeout", total) or self.total_timeout,
        )

    @property
    def patience_s(self) -> float:
        """The seconds for which a call waits for the store at most, all retries included."""
        return self.total_timeout or usual_total_s(self.read_timeout or 0)


def usual_total_s(read_timeout_s: float) -> float:
    """Return the total timeout for a read timeout: whoever chose a long one wants to wait."""
    return max(USUAL_TOTAL_S, 1.25 * read_timeout_s)


def check_store_timeout(field: str, value: object) -> float | None:
    """Return a timeout in seconds, if one was given."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 300:
        raise ValidationError(field, value, "must be a number of seconds above 0, at most 300")
    return value


def refuse_extras(text: str, parts: SplitResult) -> None:
    """Refuse a query and a fragment, which only some stores take."""
    if parts.query or parts.fragment:
        raise ValidationError("url", text, "takes no query and no fragment")
