"""Building expressions without ever writing a placeholder by hand.

e = Expression()
e.set("rf", e.value(now_ms))
e.add("ac", 1)
e.require("is_ours", f"{e.name('cv')} = {e.value(fingerprint)}")
request |= e.update_request()
"""

from __future__ import annotations

import re
from typing import Any

from .wire.values import to_attribute

# Attributes of buckets that are no words of DynamoDB's own and have none of its signs in them.
_SPELLABLE = re.compile(r"PK|rf|cv|ac|dl|lo|l[0-9]|shard_count|parent_id|b_[A-Za-z0-9_]+")


class Expression:
    """An update, a condition, or both. Each clause of the condition has a name.

    Where it is `spelled`, attributes stand for themselves if they can: the request is shorter.
    """

    def __init__(self, *, spelled: bool = False) -> None:
        self._spelled = spelled
        self._names: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._known: dict[tuple[type, object], str] = {}
        self._set: list[str] = []
        self._add: list[str] = []
        self._delete: list[str] = []
        self._remove: list[str] = []
        self.clauses: dict[str, str] = {}

    def name(self, attribute: str) -> str:
        """What stands for an attribute."""
        if self._spelled and _SPELLABLE.fullmatch(attribute):
            return attribute
        placeholder = self._names.get(attribute)
        if placeholder is None:
            self._names[attribute] = placeholder = f"#{len(self._names)}"
        return placeholder

    def value(self, value: Any) -> str:
        """The placeholder of a value. Equal values share one, but for maps: they have no hash."""
        if isinstance(value, dict):
            return self._new_value(value)
        identity = (type(value), value)
        placeholder = self._known.get(identity)
        if placeholder is None:
            self._known[identity] = placeholder = self._new_value(value)
        return placeholder

    def _new_value(self, value: Any) -> str:
        placeholder = f":{len(self._values)}"
        self._values[placeholder] = to_attribute(value)
        return placeholder

    def set(self, attribute: str, operand: str) -> None:
        """`SET attribute = operand`."""
        self._set.append(f"{self.name(attribute)} = {operand}")

    def add(self, attribute: str, amount: int) -> None:
        """`ADD attribute amount`; nothing for zero."""
        if amount:
            self.increase(attribute, self.value(amount))

    def increase(self, attribute: str, operand: str) -> None:
        """`ADD attribute operand`."""
        self._add.append(f"{self.name(attribute)} {operand}")

    def include(self, attribute: str, member: str) -> None:
        """Put a member into a set of strings; one that is there stays."""
        self._add.append(f"{self.name(attribute)} {self.value(frozenset([member]))}")

    def exclude(self, attribute: str, member: str) -> None:
        """Take a member out of a set of strings."""
        self._delete.append(f"{self.name(attribute)} {self.value(frozenset([member]))}")

    def remove(self, attribute: str) -> None:
        """`REMOVE attribute`."""
        self._remove.append(self.name(attribute))

    def require(self, clause: str, condition: str) -> None:
        """One clause of the condition; all must hold."""
        self.clauses[clause] = condition

    def condition_request(self) -> dict[str, Any]:
        """The request's fields for a condition alone."""
        fields: dict[str, Any] = {}
        if self.clauses:
            fields["ConditionExpression"] = " AND ".join(self.clauses.values())
        if self._names:
            fields["ExpressionAttributeNames"] = {p: n for n, p in self._names.items()}
        if self._values:
            fields["ExpressionAttributeValues"] = self._values
        return fields

    def update_request(self) -> dict[str, Any]:
        """The request's fields for an update, with its condition if there is one."""
        parts = {
            "SET": self._set,
            "ADD": self._add,
            "DELETE": self._delete,
            "REMOVE": self._remove,
        }
        update = " ".join(f"{verb} {', '.join(terms)}" for verb, terms in parts.items() if terms)
        return {"UpdateExpression": update, **self.condition_request()}
