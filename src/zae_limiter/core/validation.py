"""Names and amounts as users may write them: checked once, at the edge, before any I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from math import isfinite
from typing import Any, NamedTuple

from .exceptions import InvalidIdentifierError, InvalidNameError, ValidationError

DEFAULT_RESOURCE = "_default_"
WCU = "wcu"
FORGOTTEN = "_forgotten"
SET_BACK = "_set-back"
RESERVED_NAMESPACE = "_"
MAX_AMOUNT = 10**15
MAX_PERIOD_SECONDS = 10**9
_MAX_TEXT_CHARS = 1024
_STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*", re.ASCII)
_MIN_STACK_CHARS = 3
_MAX_STACK_CHARS = 55
_MAX_METADATA_KEYS = 64
_MAX_METADATA_LEVELS = 4
# A DynamoDB item holds 400 KB.
_MAX_METADATA_BYTES = 300_000
# DynamoDB keeps 38 digits.
_MAX_METADATA_NUMBER = 10**37
_MIN_METADATA_NUMBER = 1e-100


# With its prefix, at most the 1024 bytes that a sort key of DynamoDB may have.
_IDEMPOTENCY_KEY = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,255}")


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    max_chars: int
    meaning: str
    error: type[ValidationError]


_IDENTIFIER = _Rule(
    re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-:@]*", re.ASCII),
    256,
    "must start with a letter or digit and hold only letters, digits and _ . - : @",
    InvalidIdentifierError,
)
_LIMIT_NAME = _Rule(
    re.compile(r"[a-zA-Z][a-zA-Z0-9_.\-]*", re.ASCII),
    64,
    "must start with a letter and hold only letters, digits and _ . -",
    InvalidNameError,
)
_RESOURCE = _Rule(
    re.compile(r"[a-zA-Z][a-zA-Z0-9_.\-/:]*", re.ASCII),
    64,
    "must start with a letter and hold only letters, digits and _ . - / :",
    InvalidNameError,
)
_NAMESPACE = _Rule(
    re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-:@/]*", re.ASCII),
    256,
    "must start with a letter or digit and hold only letters, digits and _ . - : @ /",
    InvalidNameError,
)


def _check(rule: _Rule, field: str, value: object) -> str:
    if not isinstance(value, str):
        raise rule.error(field, value, f"must be a string, not {type(value).__name__}")
    if not value:
        raise rule.error(field, value, "cannot be empty")
    if len(value) > rule.max_chars:
        raise rule.error(field, value, f"exceeds maximum length of {rule.max_chars}")
    if "#" in value:
        raise rule.error(field, value, "cannot contain '#' (reserved delimiter)")
    if not rule.pattern.fullmatch(value):
        raise rule.error(field, _printable(value), rule.meaning)
    return value


def _printable(value: str) -> str:
    """Return the text without lone surrogates, which could not even be logged."""
    return value.encode("utf-8", "backslashreplace").decode()


# The names of limits and resources are few and recur on every call, so that bounded caches make
# checking them again cost nothing. Entities may be more than any cache holds.
_is_identifier = _IDENTIFIER.pattern.fullmatch
_limit_name = lru_cache(maxsize=1024)(partial(_check, _LIMIT_NAME))
_resource = lru_cache(maxsize=1024)(partial(_check, _RESOURCE))


def validate_identifier(value: str, field: str = "entity_id") -> str:
    """Check an entity id, a parent id or a principal."""
    is_valid = type(value) is str and len(value) <= _IDENTIFIER.max_chars and _is_identifier(value)
    return value if is_valid else _check(_IDENTIFIER, field, value)


def validate_limit_name(value: str, field: str = "name") -> str:
    """Check the name of a limit; `wcu` is reserved for the limiter itself."""
    if value == WCU:
        raise InvalidNameError(field, value, f"'{WCU}' is a reserved limit name")
    return _limit_name(field, value) if type(value) is str else _check(_LIMIT_NAME, field, value)


def validate_resource(value: str, field: str = "resource") -> str:
    """Check the name of a resource."""
    return _resource(field, value) if type(value) is str else _check(_RESOURCE, field, value)


def validate_config_resource(value: str, field: str = "resource") -> str:
    """Check a resource name, or `_default_` for all resources of an entity."""
    return value if value == DEFAULT_RESOURCE else validate_resource(value, field)


def validate_namespace(value: str, field: str = "namespace") -> str:
    """Check the name of a namespace; `_` is the registry's own."""
    if value == RESERVED_NAMESPACE:
        raise InvalidNameError(field, value, "reserved for system use")
    return _check(_NAMESPACE, field, value)


def validate_stack_name(value: str, field: str = "name") -> str:
    """Check the name of a stack and of its table, as CloudFormation and DynamoDB take it."""
    if not isinstance(value, str):
        raise ValidationError(field, value, f"must be a string, not {type(value).__name__}")
    reason = _stack_name_problem(value)
    if reason is not None:
        raise ValidationError(field, _printable(value), reason)
    return value


def _stack_name_problem(value: str) -> str | None:
    if not value:
        return "cannot be empty"
    for sign, called in (("_", "underscores"), (".", "periods"), (" ", "spaces")):
        if sign in value:
            return f"cannot contain {called}: use hyphens"
    if not _STACK_NAME.fullmatch(value):
        return "must start with a letter and hold only letters, digits and hyphens"
    if not _MIN_STACK_CHARS <= len(value) <= _MAX_STACK_CHARS:
        return f"must have {_MIN_STACK_CHARS} to {_MAX_STACK_CHARS} characters"
    return None


def validate_principal(value: str | None) -> str | None:
    """Check the author of a change: any ARN, or an identifier."""
    if value is None:
        return None
    if str(value).startswith("arn:"):
        return validate_text("principal", value)
    return validate_identifier(value, "principal")


def validate_text(field: str, value: object) -> str:
    """Check free text that must survive storage: a string, encodable, of bounded length."""
    if not isinstance(value, str):
        raise ValidationError(field, value, f"must be a string, not {type(value).__name__}")
    if len(value) > _MAX_TEXT_CHARS:
        raise ValidationError(field, value, f"exceeds maximum length of {_MAX_TEXT_CHARS}")
    if _printable(value) != value:
        raise ValidationError(field, _printable(value), "must be valid UTF-8")
    return value


def is_idempotency_key(value: str) -> bool:
    """Return whether a text can be an idempotency key."""
    return _IDEMPOTENCY_KEY.fullmatch(value) is not None


def validate_idempotency_key(value: object) -> str:
    """Check an idempotency key: any text of bounded length without control characters."""
    field = "idempotency_key"
    if not isinstance(value, str):
        raise ValidationError(field, value, f"must be a string, not {type(value).__name__}")
    if not is_idempotency_key(value):
        reason = "must have 1 to 255 characters of valid UTF-8, none of them a control character"
        raise ValidationError(field, _printable(value), reason)
    return value


def validate_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check metadata, a mapping of strings to JSON values, and return a copy of all of it."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise ValidationError("metadata", metadata, "must be a mapping of strings to JSON values")
    checked = _json_map("metadata", metadata, _MAX_METADATA_LEVELS)
    if len(json.dumps(checked, ensure_ascii=False).encode()) > _MAX_METADATA_BYTES:
        raise ValidationError("metadata", metadata, f"exceeds {_MAX_METADATA_BYTES} bytes of JSON")
    return checked


def _json_map(field: str, content: Mapping[str, Any], levels: int) -> dict[str, Any]:
    if len(content) > _MAX_METADATA_KEYS:
        raise ValidationError(field, content, f"has more than {_MAX_METADATA_KEYS} keys")
    return {
        validate_text("metadata key", key): _json_value(f"{field}[{key!r}]", value, levels - 1)
        for key, value in content.items()
    }


def _json_value(field: str, value: object, levels: int) -> Any:
    """Check a value that JSON can hold and every store gives back as it was."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        if isinstance(value, float) and not _is_storable(value):
            raise ValidationError(field, value, "must be finite, and neither vast nor tiny")
        if abs(value) > _MAX_METADATA_NUMBER:
            raise ValidationError(field, value, f"exceeds the maximum of {_MAX_METADATA_NUMBER}")
        return value
    if isinstance(value, Mapping | list | tuple):
        if levels <= 0:
            raise ValidationError(field, value, f"nests deeper than {_MAX_METADATA_LEVELS} levels")
        if isinstance(value, Mapping):
            return _json_map(field, value, levels)
        if len(value) > _MAX_METADATA_KEYS:
            raise ValidationError(field, value, f"has more than {_MAX_METADATA_KEYS} members")
        return [_json_value(f"{field}[{n}]", each, levels - 1) for n, each in enumerate(value)]
    return validate_text(field, value)


def _is_storable(number: float) -> bool:
    return isfinite(number) and (number == 0 or abs(number) > _MIN_METADATA_NUMBER)


def validate_amount(field: str, value: object, *, signed: bool = False) -> int:
    """Check a whole number of tokens; negative only where a signed delta is meant."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(field, value, f"must be an integer, not {type(value).__name__}")
    if value < 0 and not signed:
        raise ValidationError(field, value, "cannot be negative")
    if abs(value) > MAX_AMOUNT:
        raise ValidationError(field, value, f"exceeds the maximum of {MAX_AMOUNT}")
    return value


def validate_consume(consume: Mapping[str, int], field: str = "consume") -> Mapping[str, int]:
    """Check the cost of a call: limit names to whole, non-negative amounts."""
    if type(consume) is not dict and not isinstance(consume, Mapping):
        raise ValidationError(field, consume, "must be a mapping of limit names to amounts")
    for name, amount in consume.items():
        validate_limit_name(name, field)
        # Every acquire passes here: a message is only built where the amount is wrong.
        if type(amount) is not int or not 0 <= amount <= MAX_AMOUNT:
            validate_amount(f"{field}[{name!r}]", amount)
    return consume
