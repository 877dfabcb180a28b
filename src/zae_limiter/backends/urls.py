"""Choosing a store by URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from ..core.exceptions import ValidationError
from ..core.naming import validate_stack_name
from ..ports.io import Io
from ..ports.repository_protocol import RepositoryProtocol

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
    if parts.fragment or [name for name, _ in query] not in ([], ["endpoint_url"]):
        raise ValidationError("url", text, "takes one query, endpoint_url, and no fragment")
    stack = validate_stack_name(unquote(parts.path[1:]))
    endpoint_url = query[0][1] if query else ""
    return StoreUrl(text, "dynamodb", stack, region or None, endpoint_url or None)


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
        create=("always" if create_table else "elsewhere") if create else "never",
    )
