"""The registry of stores by the scheme of their URLs.

A new store has a package of its own with a module `url`, and one line here.
"""

from __future__ import annotations

from importlib import import_module
from urllib.parse import urlsplit

from ..core.exceptions import ValidationError
from ..ports.io import Io
from ..ports.repository_protocol import RepositoryProtocol
from .dynamodb.url import dynamodb_url
from .store_url import OpenRequest, StoreUrl

__all__ = ["StoreUrl", "dynamodb_url", "open_store", "parse_url"]

# Only the store that is named is imported: a user of one need not wait for the others.
_STORES = {
    "memory": ("zae_limiter.backends.memory.url", "MemoryUrl"),
    "sqlite": ("zae_limiter.backends.sqlite.url", "SqliteUrl"),
    "dynamodb": ("zae_limiter.backends.dynamodb.url", "DynamoUrl"),
}


def parse_url(text: str) -> StoreUrl:
    """Understand a URL, or say which forms there are."""
    if not isinstance(text, str):
        raise ValidationError("url", text, f"must be a string such as {_forms()}")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        # The message may quote what stands before an @: a password.
        raise ValidationError("url", text, "is no URL" if "@" in text else str(error)) from error
    if parts.scheme not in _STORES:
        raise ValidationError("url", text, f"is none of {_forms()}")
    return _kind(parts.scheme).parse(text, parts)


def _kind(scheme: str) -> type[StoreUrl]:
    module, name = _STORES[scheme]
    kind: type[StoreUrl] = getattr(import_module(module), name)
    return kind


def _forms() -> str:
    *most, last = (_kind(scheme).forms for scheme in _STORES)
    return f"{', '.join(most)} or {last}"


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
    return await url.open(io, OpenRequest(create, blocking, create_table, transport))
