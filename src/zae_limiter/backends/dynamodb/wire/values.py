"""This module turns Python values into DynamoDB attribute values, and back.

    str <-> S      bool <-> BOOL    dict <-> M    set of str <-> SS
    int <-> N      None <-> NULL    list <-> L

Numbers stay exact: integers of any size are `int`; only a fraction is a `Decimal`. A float
is refused, because it is rarely the exact number that the caller meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

Attribute = dict[str, Any]
Item = dict[str, Attribute]


def to_attribute(value: object) -> Attribute:
    """Encode a value. A subclass, such as an enum of str, is encoded as its base class."""
    encode = _ENCODERS.get(type(value))
    return _encode_subclass(value) if encode is None else encode(value)


def _encode_subclass(value: object) -> Attribute:
    for kind in type(value).__mro__:
        encode = _ENCODERS.get(kind)
        if encode is not None:
            return encode(value)
    raise TypeError(f"DynamoDB cannot store {value!r}: it is a {type(value).__name__}")


def from_attribute(attribute: Mapping[str, Any]) -> Any:
    """Decode a value."""
    for kind, content in attribute.items():
        decode = _DECODERS.get(kind)
        if decode is not None:
            return decode(content)
        raise ValueError(f"cannot read a DynamoDB value of type {kind}")
    raise ValueError("cannot read a DynamoDB value without a type")


def to_item(values: Mapping[str, object]) -> Item:
    """Encode each value."""
    return {name: to_attribute(value) for name, value in values.items()}


def from_item(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Decode each attribute."""
    return {name: from_attribute(attribute) for name, attribute in item.items()}


def _string_set(members: set[str]) -> Attribute:
    if not members:
        raise ValueError("DynamoDB cannot store an empty set")
    return {"SS": sorted(members)}


def _number(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        number = Decimal(text)
        whole = number.to_integral_value()
        return int(whole) if whole == number else number


_ENCODERS: dict[type, Callable[[Any], Attribute]] = {
    str: lambda value: {"S": str(value)},
    int: lambda value: {"N": str(int(value))},
    bool: lambda value: {"BOOL": value},
    type(None): lambda value: {"NULL": True},
    Decimal: lambda value: {"N": str(value)},
    dict: lambda value: {"M": to_item(value)},
    list: lambda value: {"L": [to_attribute(each) for each in value]},
    tuple: lambda value: {"L": [to_attribute(each) for each in value]},
    set: _string_set,
    frozenset: _string_set,
}

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "S": str,
    "N": _number,
    "BOOL": bool,
    "NULL": lambda _: None,
    "M": from_item,
    "L": lambda members: [from_attribute(each) for each in members],
    "SS": set,
    "NS": lambda members: {_number(each) for each in members},
}
