"""A rule says which calls are charged, to whom, how much, and under which limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypedDict

from ..core.exceptions import ValidationError
from ..core.limit import Limit
from .call import Call, KeyFunction, by_address

REQUEST_LIMIT = "requests"
Cost = Mapping[str, int]
LimitTexts = str | Limit | Sequence[str | Limit]


class Reservation(TypedDict):
    """The arguments of `limiter.reserve`."""

    entity_id: str
    resource: str
    consume: dict[str, int]
    limits: list[Limit] | None
    timeout: float | None


def read_limits(limits: LimitTexts | None) -> list[Limit] | None:
    """Return limits that were given as such or as text: `"100/minute; burst 20"`."""
    if limits is None:
        return None
    given = [limits] if isinstance(limits, str | Limit) else limits
    return [each if isinstance(each, Limit) else Limit.parse(each, REQUEST_LIMIT) for each in given]


def amounts_of(cost: object) -> dict[str, int]:
    """Return amounts by limit as a cost function gave them."""
    if not isinstance(cost, Mapping):
        raise ValidationError("cost", cost, f"must be amounts by limit, not {type(cost).__name__}")
    return dict(cost)


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True)
class Rule:
    """A rule charges calls to `resource`, for the entity that `key` finds.

    `cost`: amounts by limit, or a function of the call. `limits` replace the stored ones.
    `path`: one pattern or several, such as `/v1/*`; the whole path counts, mounts included.
    `methods`: all of them, if none is named; GET covers HEAD, which runs its handler.
    `exempt`: true for calls that are not charged.
    `timeout`: how long a call may wait for tokens.
    """

    resource: str | Callable[[Call], str]
    key: KeyFunction = by_address
    cost: Cost | Callable[[Call], Cost] = field(default_factory=lambda: {REQUEST_LIMIT: 1})
    limits: LimitTexts | None = None
    path: str | Sequence[str] = "*"
    methods: str | Sequence[str] = ()
    exempt: Callable[[Call], bool] | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", read_limits(self.limits))
        object.__setattr__(self, "path", _several(self.path))
        named = frozenset(method.upper() for method in _several(self.methods))
        object.__setattr__(self, "methods", named | {"HEAD"} if "GET" in named else named)

    def covers(self, call: Call) -> bool:
        """Tell whether the rule is about this call."""
        if self.methods and call.method not in self.methods:
            return False
        return any(fnmatchcase(call.path, pattern) for pattern in self.path)

    def reservation(self, call: Call) -> Reservation | None:
        """Return what to reserve for a call; None when it is exempt."""
        if self.exempt is not None and self.exempt(call):
            return None
        return {
            "entity_id": self.key(call),
            "resource": self.resource(call) if callable(self.resource) else self.resource,
            "consume": amounts_of(self.cost(call) if callable(self.cost) else self.cost),
            "limits": read_limits(self.limits),
            "timeout": self.timeout,
        }


def exempt(*paths: str) -> Rule:
    """Return a rule by which calls of these paths are not charged."""
    return Rule("exempt", path=paths, exempt=lambda call: True)


def reservation_of(rules: Iterable[Rule], call: Call) -> Reservation | None:
    """Return what to reserve by the first rule that covers a call; None when there is nothing."""
    for rule in rules:
        if rule.covers(call):
            return rule.reservation(call)
    return None
