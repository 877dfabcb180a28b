"""The attributes of an item are read by name. A failure is reported as damage of the item."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

from ...core.exceptions import StoredDataError, ValidationError
from ..damage import MAX_STORED_NUMBER
from .wire.values import Item, from_attribute

T = TypeVar("T")


class ItemReader:
    """A reader decodes only the attributes that it is asked for, so unknown ones do no harm."""

    def __init__(self, item: Item) -> None:
        self.item = item

    def value(self, name: str) -> Any:
        """Return the value of an attribute; None when there is none."""
        attribute = self.item.get(name)
        return None if attribute is None else from_attribute(attribute)

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r}, not text")
        return value

    def maybe_text(self, name: str) -> str | None:
        return None if self.value(name) is None else self.text(name)

    def integer(self, name: str) -> int:
        value = self.value(name)
        if type(value) is not int:
            raise ValueError(f"{name} is {value!r}, not a whole number")
        if not -MAX_STORED_NUMBER <= value <= MAX_STORED_NUMBER:
            raise ValueError(f"{name} is {value}, which is out of all bounds")
        return value

    def number(self, name: str) -> int | Decimal:
        value = self.value(name)
        if type(value) is not int and not isinstance(value, Decimal):
            raise ValueError(f"{name} is {value!r}, not a number")
        return value

    def maybe_integer(self, name: str) -> int | None:
        return None if self.value(name) is None else self.integer(name)

    def maybe_flag(self, name: str) -> bool | None:
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}, not true or false")
        return value

    def map(self, name: str) -> dict[str, Any]:
        """Return a map; an empty one when there is none."""
        value = self.value(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ValueError(f"{name} is {value!r}, not a map")
        return value


def record_name(item: Item) -> str:
    """Return the name of an item in messages: its key."""
    return " ".join(str(item.get(part, {}).get("S", "?")) for part in ("PK", "SK"))


def decode_record(item: Item, decode: Callable[[ItemReader], T]) -> T:
    """Decode an item, or raise an error that names it."""
    try:
        return decode(ItemReader(item))
    except (ArithmeticError, LookupError, TypeError, ValueError, ValidationError) as error:
        raise StoredDataError(record_name(item), str(error)) from error
