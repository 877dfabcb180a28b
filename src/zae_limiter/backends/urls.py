"""Choosing a store by URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from ..core.exceptions import ValidationError
from ..core.validation import validate_stack_name
from ..ports.io import Io
from ..ports.repository_protocol import RepositoryProtocol

if TYPE_CHECKING:
    from .dynamodb.wire.edge import Limits

Scheme = Literal["memory", "sqlite", "dynamodb"]
_FORMS = (
    "memory://, sqlite:///limits.db (relative), sqlite:////var/lib/limits.db (absolute)"
    " or dynamodb://us-east-1/my-stack"
)
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A URL, understood. `path` is the file of a SQLite store, or the table of a DynamoDB one."""

    text: str
    scheme: Scheme
    path: str = ""
    region: str | None = None
    endpoint_url: str | None = None
    connect_timeout: float | None = None
    read_timeout: float | None = None

    def with_timeouts(self, connect: float | None, read: float | None) -> StoreUrl:
        """The same store, with the timeouts that are given, in seconds, in place of its own."""
        return replace(
            self,
            connect_timeout=_timeout("connect_timeout", connect) or self.connect_timeout,
            read_timeout=_timeout("read_timeout", read) or self.read_timeout,
        )

    @property
    def is_embedded(self) -> bool:
        """True for a store with one connection: running calls in parallel gains nothing."""
        return self.scheme != "dynamodb"

    @property
    def name(self) -> str:
        """What the store is called: its stack, or the whole URL where there is none."""
        return self.path if self.scheme == "dynamodb" else self.text


def parse_url(text: str) -> StoreUrl:
    """Understand a URL, or say which forms there are."""
    if not isinstance(text, str):
        raise ValidationError("url", text, f"must be a string such as {_FORMS}")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ValidationError("url", text, str(error)) from error
    if parts.scheme == "dynamodb" and len(parts.path) > 1:
        return _dynamodb(text, parts)
    if parts.query or parts.fragment:
        raise ValidationError("url", text, "takes no query and no fragment")
    if parts.scheme == "memory" and not parts.netloc and parts.path in ("", "/"):
        return StoreUrl(text, "memory")
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        return StoreUrl(text, "sqlite", unquote(parts.path[1:]))
    raise ValidationError("url", text, f"is none of {_FORMS}")


def dynamodb_url(stack: str, region: str | None = None, endpoint_url: str | None = None) -> str:
    """The URL of a stack. Without a region, that of the environment or the profile counts."""
    query = f"?endpoint_url={_quoted('endpoint_url', endpoint_url)}" if endpoint_url else ""
    return f"dynamodb://{_quoted('region', region or '')}/{_quoted('stack', stack)}{query}"


def _quoted(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValidationError(field, value, f"must be a string, not {type(value).__name__}")
    return quote(value, safe="")


def _dynamodb(text: str, parts: SplitResult) -> StoreUrl:
    region = unquote(parts.netloc)
    if region and not _REGION.fullmatch(region):
        raise ValidationError("region", region, "must be like us-east-1")
    query = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(query)
    if parts.fragment or len(options) < len(query) or not options.keys() <= _OPTIONS:
        known = ", ".join(sorted(_OPTIONS))
        raise ValidationError("url", text, f"takes each of {known} once, and no fragment")
    stack = validate_stack_name(unquote(parts.path[1:]))
    endpoint_url = options.get("endpoint_url") or None
    found = StoreUrl(text, "dynamodb", stack, region or None, endpoint_url)
    return found.with_timeouts(*(_seconds(options, name) for name in _TIMEOUTS))


_TIMEOUTS = ("connect_timeout", "read_timeout")
_OPTIONS = {"endpoint_url", *_TIMEOUTS}


def _seconds(options: Mapping[str, str], name: str) -> float | None:
    try:
        return float(options[name]) if name in options else None
    except ValueError as error:
        raise ValidationError(name, options[name], "must be a number of seconds") from error


def _timeout(field: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 300:
        raise ValidationError(field, value, "must be a number of seconds above 0, at most 300")
    return value


async def open_store(
    url: StoreUrl,
    io: Io,
    *,
    create: bool,
    blocking: bool = True,
    create_table: bool = False,
    transport: str | None = None,
) -> RepositoryProtocol:
    """Open the store that a URL names; `create` makes it when it does not exist.

    A table at AWS is made only if `create_table` asks for it, too. `blocking` says which
    driver `io` is of; `transport` is how DynamoDB is spoken to.
    """
    if url.scheme == "memory":
        from .memory import MemoryStore

        return MemoryStore()
    if url.scheme == "sqlite":
        from .sqlite import SqliteStore

        return await SqliteStore.open(url.path, io, create=create)
    from .dynamodb.store import DynamoStore

    return await DynamoStore.open(
        url.path,
        io,
        blocking=blocking,
        region=url.region,
        endpoint_url=url.endpoint_url,
        transport=transport,
        limits=_limits(url),
        create=("always" if create_table else "elsewhere") if create else "never",
    )


def _limits(url: StoreUrl) -> Limits:
    from .dynamodb.wire.edge import Limits

    usual = Limits()
    return Limits(
        url.connect_timeout or usual.connect_timeout_s, url.read_timeout or usual.read_timeout_s
    )
