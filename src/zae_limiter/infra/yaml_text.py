"""A template as YAML, which people can read: maps and lists as blocks, texts as JSON writes them.

YAML holds all of JSON, so that a text in JSON's quotes means the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# Texts that can stand without quotes: numbers, dates, `yes` and `null` are none of them.
_WORD = r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[A-Za-z]"
_PLAIN = re.compile(_WORD + r"[A-Za-z0-9 _/-]*[A-Za-z0-9]", re.IGNORECASE)
_PLAIN_KEY = re.compile(_WORD + r"[A-Za-z0-9:_-]*[A-Za-z0-9]", re.IGNORECASE)
_INDENT = "  "


def yaml_text(value: Any) -> str:
    """Return a value of maps, lists, texts, numbers and booleans as YAML."""
    return "\n".join(_lines(value, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield from _entry(f"{indent}{_key(key)}:", held, indent + _INDENT)
    else:
        for held in value:
            yield from _item(held, indent)


def _entry(head: str, held: Any, indent: str) -> Iterator[str]:
    if _is_block(held):
        yield head
        yield from _lines(held, indent)
    else:
        yield f"{head} {_scalar(held)}"


def _item(held: Any, indent: str) -> Iterator[str]:
    if not _is_block(held):
        yield f"{indent}- {_scalar(held)}"
        return
    first, *others = _lines(held, indent + _INDENT)
    yield f"{indent}- {first.lstrip()}"
    yield from others


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping | list) and bool(value)


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value)
