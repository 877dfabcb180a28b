"""Tags of a stack say whose it is and of which version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .._version import __version__
from ..backends.dynamodb.versions import TABLE_VERSION

MANAGED_BY = "ManagedBy"
OWNER = "zae-limiter"
NAME = "zae-limiter:name"
TYPE = "zae-limiter:type"
LIMITER = "limiter"
VERSION = "zae-limiter:version"
LAMBDA_VERSION = "zae-limiter:lambda-version"
SCHEMA_VERSION = "zae-limiter:schema-version"
_MANAGED = (MANAGED_BY, NAME, TYPE, VERSION, LAMBDA_VERSION, SCHEMA_VERSION)


def stack_tags(stack_name: str, given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the tags of a stack: those that were given, and its own, which win."""
    return {
        **(given or {}),
        MANAGED_BY: OWNER,
        NAME: stack_name,
        TYPE: LIMITER,
        VERSION: __version__,
        LAMBDA_VERSION: __version__,
        SCHEMA_VERSION: TABLE_VERSION,
    }


def own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that somebody gave the stack: all but its own."""
    return {key: value for key, value in tags.items() if key not in _MANAGED}


def read_tags(told: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return tags as AWS tells them by key."""
    return {tag["Key"]: tag["Value"] for tag in told}


def is_limiter(tags: Mapping[str, str]) -> bool:
    """Whether these are the tags of a limiter's stack."""
    return tags.get(MANAGED_BY) == OWNER and tags.get(TYPE, LIMITER) == LIMITER
