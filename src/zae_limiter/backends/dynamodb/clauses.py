"""Updates whose text is written once.

An update is a list of clauses, each with its value:

    rf, count = Field("rf"), Field("ac")
    Update.of(fixed, key, [(rf.equals, seen_ms), (rf.set, now_ms), (count.add, 1)])

A clause writes its part of the expression for any value. Requests of the same clauses have
the same text, which is kept as a form; only key and values differ from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from . import schema
from .expressions import Expression
from .wire.protocol import SelfEncoded, to_json, to_text
from .wire.values import to_attribute

Clause = Callable[[Expression, str], None]
"""Writes its part of an expression, with the placeholder of its value."""

Value = int | str | bool | None
"""None is the value of a clause that needs none."""

Clauses = Sequence[tuple[Clause, Value]]
Fixed = tuple[tuple[str, str], ...]
KeyText = tuple[str, str]


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

    def decrease(self, e: Expression, value: str) -> None:
        """There has to be a number, unlike with `add`."""
        e.set(self.attribute, f"{e.name(self.attribute)} - {value}")

    def remove(self, e: Expression, value: str) -> None:
        e.remove(self.attribute)

    def _require(self, e: Expression, condition: str) -> None:
        e.require(condition, condition)


class Form:
    """The text of all updates that have the same clauses, with blanks for key and values."""

    def __init__(self, fixed: Fixed, parts: Sequence[Clause], kinds: Sequence[type]) -> None:
        self._placeholders = [f":{number}" for number in range(len(parts))]
        fields = self._written(parts, spelled=True)
        if any(len(text) > _LONGEST for text in fields.values()):
            fields = self._written(parts, spelled=False)
        self._fields = {**dict(fixed), **fields}
        self._json = self._template(kinds)

    def _written(self, parts: Sequence[Clause], *, spelled: bool) -> dict[str, Any]:
        e = Expression(spelled=spelled)
        for part, placeholder in zip(parts, self._placeholders, strict=True):
            part(e, placeholder)
        return e.update_request()

    def _template(self, kinds: Sequence[type]) -> str:
        constant = to_json(self._fields).replace("%", "%%")
        values = [
            f'"{placeholder}":{_FORMATS[kind]}'
            for placeholder, kind in zip(self._placeholders, kinds, strict=True)
            if kind is not type(None)
        ]
        key = '"Key":{"PK":{"S":%s},"SK":{"S":%s}}'
        return f'{constant[:-1]},{key},"ExpressionAttributeValues":{{{",".join(values)}}}}}'

    def to_json(self, key: KeyText, values: Sequence[Value]) -> str:
        """The parameters of an update, in JSON."""
        pk, sk = key
        texts = [
            v if type(v) is int else to_text(v) if type(v) is str else to_json(v)
            for v in values
            if v is not None
        ]
        return self._json % (to_text(pk), to_text(sk), *texts)

    def fields(self, key: KeyText, values: Sequence[Value]) -> dict[str, Any]:
        """The same, not encoded."""
        filled = {
            placeholder: to_attribute(value)
            for placeholder, value in zip(self._placeholders, values, strict=True)
            if value is not None
        }
        return {**self._fields, "Key": schema.key(*key), "ExpressionAttributeValues": filled}


_FORMATS: dict[type, str] = {int: '{"N":"%d"}', str: '{"S":%s}', bool: '{"BOOL":%s}'}
_LONGEST = 4096
"""An expression may have so many characters."""

_form = lru_cache(maxsize=1024)(Form)


class Update(SelfEncoded):
    """The parameters of an update of one item: a form that has been filled in."""

    def __init__(self, form: Form, key: KeyText, values: Sequence[Value]) -> None:
        self._form = form
        self._key = key
        self._values = values

    @staticmethod
    def of(fixed: Fixed, key: KeyText, clauses: Clauses) -> Update:
        """From clauses with their values."""
        parts, values = zip(*clauses, strict=True)
        return Update(_form(fixed, parts, tuple(map(type, values))), key, values)

    def to_json(self) -> str:
        return self._form.to_json(self._key, self._values)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return self._form.fields(self._key, self._values)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)
