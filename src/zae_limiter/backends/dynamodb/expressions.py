"""Conditions, updates and queries, without a placeholder written by hand.

An expression is a list of terms. Each term is a clause about an attribute, with its values:

    VERSION, NAME = Field("version"), Field("name")
    request |= request_fields([VERSION.equals(3), VERSION.set(4), NAME.remove()])

Names and values always have placeholders: a limit may be called `a-b.c`, and DynamoDB takes no
expression of more than 4,096 characters, however long the names are.

Expressions of the same clauses and attributes have the same text, whatever their values. The text
is written once, as a form, and only values are filled in: see ADR 15.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

from . import schema
from .wire.protocol import SelfEncoded, to_json, to_text
from .wire.values import to_attribute


def _without_spaces(text: str) -> str:
    """Return the text as short as it can be: a change of all limits is one expression."""
    for sign in (" = ", " >= ", " <= ", ", "):
        text = text.replace(sign, sign.strip())
    return text


class Clause:
    """A clause is a text with blanks for each part of an expression that it adds to.

    In the text, {0}, {1} and so on are attributes, {a}, {b} and so on are values.
    """

    def __init__(self, **texts: str) -> None:
        self.texts = {part: _without_spaces(text) for part, text in texts.items()}
        self.blanks = [v for v in "abcd" if any(f"{{{v}}}" in text for text in texts.values())]


Term = tuple[Clause, tuple[str, ...], tuple[Any, ...]]
"""A clause, its attributes and its values."""

Fixed = tuple[tuple[str, str], ...]
KeyText = tuple[str, str]

_EQUALS = Clause(IF="{0} = {a}")
_EQUALS_OR_ABSENT = Clause(IF="({0} = {a} OR attribute_not_exists({0}))")
_DIFFERS_OR_ABSENT = Clause(IF="(attribute_not_exists({0}) OR {0} <> {a})")
_ABOVE_OR_ABSENT = Clause(IF="(attribute_not_exists({0}) OR {0} > {a})")
_AT_LEAST = Clause(IF="{0} >= {a}")
_AT_MOST = Clause(IF="{0} <= {a}")
_BELOW = Clause(IF="{0} < {a}")
_BELOW_OR_ABSENT = Clause(IF="(attribute_not_exists({0}) OR {0} < {a})")
_EXISTS = Clause(IF="attribute_exists({0})")
_IS_ABSENT = Clause(IF="attribute_not_exists({0})")
_SET = Clause(SET="{0} = {a}")
_SET_IF_ABSENT = Clause(SET="{0} = if_not_exists({0}, {a})")
_ADD = Clause(ADD="{0} {a}")
_DELETE = Clause(DELETE="{0} {a}")
_REMOVE = Clause(REMOVE="{0}")
_KEY_EQUALS = Clause(KEY="{0} = {a}")
_KEY_BEGINS_WITH = Clause(KEY="begins_with({0}, {a})")
_KEY_BETWEEN = Clause(KEY="{0} BETWEEN {a} AND {b}")
_SHOW = Clause(SHOW="{0}")


class Field(str):
    """The name of an attribute, and the terms that speak of it."""

    def equals(self, value: Any) -> Term:
        return _EQUALS, (self,), (value,)

    def equals_or_is_absent(self, value: Any) -> Term:
        return _EQUALS_OR_ABSENT, (self,), (value,)

    def differs_or_is_absent(self, value: Any) -> Term:
        return _DIFFERS_OR_ABSENT, (self,), (value,)

    def is_above_or_absent(self, value: Any) -> Term:
        return _ABOVE_OR_ABSENT, (self,), (value,)

    def at_least(self, value: Any) -> Term:
        return _AT_LEAST, (self,), (value,)

    def at_most(self, value: Any) -> Term:
        return _AT_MOST, (self,), (value,)

    def below(self, value: Any) -> Term:
        return _BELOW, (self,), (value,)

    def is_below_or_absent(self, value: Any) -> Term:
        return _BELOW_OR_ABSENT, (self,), (value,)

    def exists(self) -> Term:
        return _EXISTS, (self,), ()

    def is_absent(self) -> Term:
        return _IS_ABSENT, (self,), ()

    def set(self, value: Any) -> Term:
        return _SET, (self,), (value,)

    def set_if_absent(self, value: Any) -> Term:
        """Set the attribute, unless the item has one already."""
        return _SET_IF_ABSENT, (self,), (value,)

    def set_or_remove(self, value: Any) -> Term:
        """Set the attribute; None removes it."""
        return self.remove() if value is None else self.set(value)

    def add(self, amount: int | Decimal) -> Term:
        """Add to a number. One that is not there yet counts as zero."""
        return _ADD, (self,), (amount,)

    def remove(self) -> Term:
        return _REMOVE, (self,), ()

    def include(self, member: str) -> Term:
        """Put a member into a set of strings; one that is there stays."""
        return _ADD, (self,), (frozenset([member]),)

    def exclude(self, member: str) -> Term:
        """Take a member out of a set of strings."""
        return _DELETE, (self,), (frozenset([member]),)

    def key_equals(self, value: str) -> Term:
        return _KEY_EQUALS, (self,), (value,)

    def key_begins_with(self, prefix: str) -> Term:
        return _KEY_BEGINS_WITH, (self,), (prefix,)

    def key_between(self, low: str, high: str) -> Term:
        """Both ends are included."""
        return _KEY_BETWEEN, (self,), (low, high)

    def show(self) -> Term:
        """Have the attribute in the answer. Where none is shown, all are."""
        return _SHOW, (self,), ()


PK = Field("PK")
IS_NEW = (PK.is_absent(),)
"""The condition of a record that must not be there yet."""


class Form:
    """A form is the text of all requests with the same terms, whatever their values."""

    def __init__(
        self,
        fixed: Fixed,
        clauses: Sequence[Clause],
        attributes: Sequence[Sequence[str]],
        kinds: Sequence[type],
    ) -> None:
        self._placeholders = [f":{number}" for number in range(len(kinds))]
        self._fixed = {**dict(fixed), **self._written(clauses, attributes)}
        self._json = self._template(kinds)

    def _written(
        self, clauses: Sequence[Clause], attributes: Sequence[Sequence[str]]
    ) -> dict[str, Any]:
        names: dict[str, str] = {}
        parts: dict[str, list[str]] = {}
        unused = iter(self._placeholders)
        for clause, mentioned in zip(clauses, attributes, strict=True):
            shown = [names.setdefault(name, f"#{len(names)}") for name in mentioned]
            values = {blank: next(unused) for blank in clause.blanks}
            for part, text in clause.texts.items():
                parts.setdefault(part, []).append(text.format(*shown, **values))
        fields: dict[str, Any] = dict(_expressions(parts))
        return fields | {"ExpressionAttributeNames": {short: n for n, short in names.items()}}

    def _template(self, kinds: Sequence[type]) -> str:
        constant = to_json(self._fixed).replace("%", "%%")
        values = [
            f'"{placeholder}":{_FORMATS.get(kind, "%s")}'
            for placeholder, kind in zip(self._placeholders, kinds, strict=True)
        ]
        key = '"Key":{"PK":{"S":%s},"SK":{"S":%s}}'
        return f'{constant[:-1]},{key},"ExpressionAttributeValues":{{{",".join(values)}}}}}'

    def to_json(self, key: KeyText, values: Sequence[Any]) -> str:
        """Return the parameters of an update, in JSON."""
        pk, sk = key
        texts = [v if type(v) is int else _as_text(v) for v in values]
        return self._json % (to_text(pk), to_text(sk), *texts)

    def fields(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the fields of a request, without a key."""
        if not values:
            return dict(self._fixed)
        filled = zip(self._placeholders, map(to_attribute, values), strict=True)
        return {**self._fixed, "ExpressionAttributeValues": dict(filled)}


def _as_text(value: Any) -> str:
    """Return a value that is no number, as its format takes it."""
    if type(value) is str:
        return to_text(value)
    if type(value) is bool:
        return "true" if value else "false"
    return to_json(to_attribute(value))


_FORMATS: dict[type, str] = {int: '{"N":"%d"}', str: '{"S":%s}', bool: '{"BOOL":%s}'}
_form = lru_cache(maxsize=1024)(Form)


def _expressions(parts: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    verbs = [verb for verb in ("SET", "ADD", "DELETE", "REMOVE") if verb in parts]
    if verbs:
        yield "UpdateExpression", " ".join(f"{verb} {','.join(parts[verb])}" for verb in verbs)
    if "IF" in parts:
        yield "ConditionExpression", " AND ".join(parts["IF"])
    if "KEY" in parts:
        yield "KeyConditionExpression", " AND ".join(parts["KEY"])
    if "SHOW" in parts:
        yield "ProjectionExpression", ", ".join(parts["SHOW"])


def request_fields(terms: Iterable[Term]) -> dict[str, Any]:
    """Return the fields of a request for these terms; none for no terms."""
    said = list(terms)
    if not said:
        return {}
    clauses, attributes, values = zip(*said, strict=True)
    flat = list(chain.from_iterable(values))
    return _form((), clauses, attributes, tuple(map(type, flat))).fields(flat)


class Update(SelfEncoded):
    """An update is a form that has been filled in: the parameters of an `UpdateItem`."""

    def __init__(self, fixed: Fixed, key: KeyText, terms: Iterable[Term]) -> None:
        clauses, attributes, values = zip(*terms, strict=True)
        self._key = key
        self._values = list(chain.from_iterable(values))
        self._form = _form(fixed, clauses, attributes, tuple(map(type, self._values)))

    def to_json(self) -> str:
        return self._form.to_json(self._key, self._values)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return {**self._form.fields(self._values), "Key": schema.key(*self._key)}

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)
