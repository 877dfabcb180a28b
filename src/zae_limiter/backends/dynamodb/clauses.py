"""Updates whose text is written once.

An update is a list of clauses, each with its value:

    rf, count = Field("rf"), Field("ac")
    Update((("TableName", name),), key, [(rf.equals, seen_ms), (rf.set, now_ms), (count.add, 1)])

A clause writes its part of the expression for any value. Requests of the same clauses have
the same text, which is kept, also as JSON; only key and values differ from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from .expressions import Expression
from .wire.protocol import SelfEncoded, to_json
from .wire.values import to_attribute

Clause = Callable[[Expression, str], None]
"""Writes its part of an expression, with the placeholder of its value."""

Value = int | str | bool | None
"""None is the value of a clause that needs none."""

Clauses = Sequence[tuple[Clause, Value]]
Fixed = tuple[tuple[str, str], ...]


class Field:
    """What can be said of one attribute, as clauses."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def equals(self, e: Expression, value: str) -> None:
        self._require(e, f"{e.name(self.attribute)} = {value}")

    def equals_or_is_absent(self, e: Expression, value: str) -> None:
        name = e.name(self.attribute)
        self._require(e, f"({name} = {value} OR attribute_not_exists({name}))")

    def is_absent_or_above(self, e: Expression, value: str) -> None:
        name = e.name(self.attribute)
        self._require(e, f"(attribute_not_exists({name}) OR {name} > {value})")

    def at_least(self, e: Expression, value: str) -> None:
        self._require(e, f"{e.name(self.attribute)} >= {value}")

    def at_most(self, e: Expression, value: str) -> None:
        self._require(e, f"{e.name(self.attribute)} <= {value}")

    def below(self, e: Expression, value: str) -> None:
        self._require(e, f"{e.name(self.attribute)} < {value}")

    def exists(self, e: Expression, value: str) -> None:
        self._require(e, f"attribute_exists({e.name(self.attribute)})")

    def is_absent(self, e: Expression, value: str) -> None:
        self._require(e, f"attribute_not_exists({e.name(self.attribute)})")

    def set(self, e: Expression, value: str) -> None:
        e.set(self.attribute, value)

    def add(self, e: Expression, value: str) -> None:
        e.increase(self.attribute, value)

    def remove(self, e: Expression, value: str) -> None:
        e.remove(self.attribute)

    def _require(self, e: Expression, condition: str) -> None:
        e.require(condition, condition)


class Update(SelfEncoded):
    """The parameters of an update of one item: some that are fixed, a key, and clauses."""

    def __init__(self, fixed: Fixed, key: dict[str, Any], clauses: Clauses) -> None:
        self._fixed = fixed
        self._key = key
        self._parts: tuple[Clause, ...]
        self._values: tuple[Value, ...]
        self._parts, self._values = zip(*clauses, strict=True)

    def to_json(self) -> str:
        kinds = tuple(map(type, self._values))
        values = [v if type(v) is int else to_json(v) for v in self._values if v is not None]
        key = [to_json(part["S"]) for part in self._key.values()]
        return _template(self._fixed, self._parts, kinds) % (*key, *values)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        written, placeholders = _written(self._parts)
        values = {
            placeholder: to_attribute(value)
            for placeholder, value in zip(placeholders, self._values, strict=True)
            if value is not None
        }
        return {
            **dict(self._fixed),
            "Key": self._key,
            **written,
            "ExpressionAttributeValues": values,
        }

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


@lru_cache(maxsize=1024)
def _written(parts: tuple[Clause, ...]) -> tuple[dict[str, Any], list[str]]:
    e = Expression()
    placeholders = [f":{number}" for number in range(len(parts))]
    for part, placeholder in zip(parts, placeholders, strict=True):
        part(e, placeholder)
    return e.update_request(), placeholders


_FORMATS: dict[type, str] = {int: '{"N":"%d"}', str: '{"S":%s}', bool: '{"BOOL":%s}'}


@lru_cache(maxsize=1024)
def _template(fixed: Fixed, parts: tuple[Clause, ...], kinds: tuple[type, ...]) -> str:
    """The JSON of an update, with a place for its key and one for each of its values."""
    written, placeholders = _written(parts)
    constant = to_json({**dict(fixed), **written}).replace("%", "%%")
    values = [
        f'"{placeholder}":{_FORMATS[kind]}'
        for placeholder, kind in zip(placeholders, kinds, strict=True)
        if kind is not type(None)
    ]
    key = '"Key":{"PK":{"S":%s},"SK":{"S":%s}}'
    return f'{constant[:-1]},{key},"ExpressionAttributeValues":{{{",".join(values)}}}}}'
