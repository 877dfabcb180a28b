"""Which store and namespace to open, from arguments and the environment."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.exceptions import ValidationError

DEFAULT_NAMESPACE = "default"
DEFAULT_STACK = "zae-limiter"


def choose_url(
    url: str | None,
    stack: str | None,
    region: str | None,
    endpoint_url: str | None,
    environment: Mapping[str, str],
) -> str | None:
    """The argument, else `ZAEL_URL`; None when a stack was asked for, or nothing at all."""
    chosen = url or (None if stack else environment.get("ZAEL_URL")) or None
    parts = {"stack": stack, "region": region, "endpoint_url": endpoint_url}
    for field, value in parts.items():
        if chosen and value:
            origin = "url=" if url else "ZAEL_URL"
            raise ValidationError(field, value, f"the store is named by {origin} already")
    return chosen


def choose_stack(stack: str | None, environment: Mapping[str, str]) -> str:
    """The argument, else `ZAEL_STACK`, else `zae-limiter`."""
    return stack or environment.get("ZAEL_STACK") or DEFAULT_STACK


def choose_namespace(namespace: str | None, environment: Mapping[str, str]) -> str:
    """The argument, else `ZAEL_NAMESPACE`, else `default`."""
    return namespace or environment.get("ZAEL_NAMESPACE") or DEFAULT_NAMESPACE
