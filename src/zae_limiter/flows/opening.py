"""Which store and namespace to open, from arguments and the environment."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.exceptions import ValidationError

DEFAULT_NAMESPACE = "default"


def choose_url(url: str | None, environment: Mapping[str, str]) -> str:
    """The argument, else `ZAEL_URL`."""
    chosen = url or environment.get("ZAEL_URL")
    if not chosen:
        raise ValidationError(
            "url", url, "pass url= or set ZAEL_URL, for example to sqlite:///limits.db"
        )
    return chosen


def choose_namespace(namespace: str | None, environment: Mapping[str, str]) -> str:
    """The argument, else `ZAEL_NAMESPACE`, else `default`."""
    return namespace or environment.get("ZAEL_NAMESPACE") or DEFAULT_NAMESPACE
