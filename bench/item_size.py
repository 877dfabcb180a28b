"""How large DynamoDB reckons an item to be: what a write costs goes by it, a unit per 1024 bytes.

The rules are those of AWS's developer guide, "DynamoDB item sizes and formats".
"""

from __future__ import annotations

from typing import Any

from zae_limiter.backends.dynamodb.wire.values import Item


def item_bytes(item: Item) -> int:
    """Names and values, all of them in UTF-8."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(attribute: dict[str, Any]) -> int:
    ((kind, value),) = attribute.items()
    match kind:
        case "S":
            return len(value.encode())
        case "N":
            return _number_bytes(value)
        case "BOOL" | "NULL":
            return 1
        case _:
            raise TypeError(f"bucket items have no {kind}")


def _number_bytes(text: str) -> int:
    """A byte for every two significant digits, and one more; another one for a minus."""
    digits = text.lstrip("-").strip("0") or "0"
    return -(-len(digits) // 2) + 1 + text.startswith("-")
