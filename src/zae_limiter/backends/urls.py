"""The registry of stores by the scheme of their URLs.

A new store has a package of its own with a module `url`, and one line here.
"""

from __future__ import annotations

from importlib import import_module
from urllib.parse import urlsplit

from ..core.exceptions import ValidationError
from .store_url import StoreUrl

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
