"""A limit as users write it, and a set of limits as buckets carry it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from .exceptions import InvalidLimitError, ValidationError
from .limit_syntax import read_limit
from .rates import seconds_to_fill, tokens_per_second
from .validation import MAX_AMOUNT, MAX_PERIOD_SECONDS, validate_limit_name

MILLI = 1000
MAX_LIMITS = 32


class LimitName:
    """Names that many limits have."""

    RPM = "rpm"
    RPH = "rph"
    RPD = "rpd"
    TPM = "tpm"
    TPH = "tph"
    TPD = "tpd"


@dataclass(frozen=True)
class Limit:
    """A limit holds at most `capacity` tokens and gains `refill_amount` of them in every
    `refill_period_seconds`, continuously.

        Limit.per_minute("rpm", 100)              # 100 at once, 100 per minute
        Limit.per_minute("rpm", 100, burst=150)   # 150 at once, 100 per minute
    """

    name: str
    capacity: int
    refill_amount: int
    refill_period_seconds: int

    def __post_init__(self) -> None:
        validate_limit_name(self.name)
        _positive("capacity", self.capacity, MAX_AMOUNT)
        _positive("refill_amount", self.refill_amount, MAX_AMOUNT)
        _positive("refill_period_seconds", self.refill_period_seconds, MAX_PERIOD_SECONDS)

    @classmethod
    def per_second(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """`rate` per second; at most `burst` (default: `rate`) at once."""
        return cls(name, rate if burst is None else burst, rate, 1)

    @classmethod
    def per_minute(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """`rate` per minute; at most `burst` (default: `rate`) at once."""
        return cls(name, rate if burst is None else burst, rate, 60)

    @classmethod
    def per_hour(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """`rate` per hour; at most `burst` (default: `rate`) at once."""
        return cls(name, rate if burst is None else burst, rate, 3600)

    @classmethod
    def per_day(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """`rate` per day; at most `burst` (default: `rate`) at once."""
        return cls(name, rate if burst is None else burst, rate, 86400)

    @classmethod
    def custom(
        cls, name: str, capacity: int, refill_amount: int, refill_period_seconds: int
    ) -> Limit:
        """Any capacity with any rate."""
        return cls(name, capacity, refill_amount, refill_period_seconds)

    @classmethod
    def parse(cls, text: str, name: str | None = None) -> Limit:
        """Read a text such as `rpm: 100/minute; burst 20`, or a form of the command line. `name` is
        for a text without one."""
        return cls(*read_limit(text, name))

    @classmethod
    def from_bucket_state(cls, state: BucketState) -> Limit:
        """The limit that a bucket was stamped with."""
        return cls(
            state.limit_name,
            state.capacity_milli // MILLI,
            state.refill_amount_milli // MILLI,
            state.refill_period_ms // 1000,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Limit:
        """Return the limit of which `to_dict` made this."""
        return cls(
            data["name"],
            data["capacity"],
            data["refill_amount"],
            data["refill_period_seconds"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the four fields."""
        return {
            "name": self.name,
            "capacity": self.capacity,
            "refill_amount": self.refill_amount,
            "refill_period_seconds": self.refill_period_seconds,
        }

    @property
    def refill_rate(self) -> float:
        """Tokens per second."""
        return tokens_per_second(self.refill_amount, self.refill_period_seconds)

    @property
    def seconds_to_fill(self) -> float:
        """The time in which an empty bucket becomes full."""
        return seconds_to_fill(self.capacity, self.refill_amount, self.refill_period_seconds)


@dataclass
class BucketState:
    """The state of one limit of one bucket, in millitokens."""

    entity_id: str
    resource: str
    limit_name: str
    tokens_milli: int
    last_refill_ms: int
    capacity_milli: int
    refill_amount_milli: int
    refill_period_ms: int
    total_consumed_milli: int | None = None

    @property
    def tokens(self) -> int:
        """Whole tokens; negative while in debt."""
        return self.tokens_milli // MILLI

    @property
    def capacity(self) -> int:
        """The ceiling in whole tokens."""
        return self.capacity_milli // MILLI

    @classmethod
    def from_limit(cls, entity_id: str, resource: str, limit: Limit, now_ms: int) -> BucketState:
        """A full bucket."""
        return cls(
            entity_id,
            resource,
            limit.name,
            tokens_milli=limit.capacity * MILLI,
            last_refill_ms=now_ms,
            capacity_milli=limit.capacity * MILLI,
            refill_amount_milli=limit.refill_amount * MILLI,
            refill_period_ms=limit.refill_period_seconds * 1000,
            total_consumed_milli=0,
        )


def _positive(field: str, value: object, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidLimitError(field, value, f"must be an integer, not {type(value).__name__}")
    if value <= 0:
        raise InvalidLimitError(field, value, "must be positive")
    if value > maximum:
        raise InvalidLimitError(field, value, f"must be at most {maximum}")


@dataclass(frozen=True, slots=True)
class LimitSet:
    """Limits that are enforced together, with the fingerprint that bucket items are stamped with.

    `seconds_to_fill`: the time in which the slowest limit fills.
    """

    limits: tuple[Limit, ...]
    fingerprint: str
    by_name: dict[str, Limit] = field(compare=False)
    names: frozenset[str] = field(compare=False)
    seconds_to_fill: float = field(compare=False)

    @classmethod
    def of(cls, limits: Iterable[Limit]) -> LimitSet:
        """Return the set of these limits; their order does not matter."""
        return _limit_set(tuple(limits))


@lru_cache(maxsize=4096)
def _limit_set(limits: tuple[Limit, ...]) -> LimitSet:
    ordered = sorted(limits, key=lambda limit: limit.name)
    text = ";".join(
        f"{x.name}:{x.capacity}:{x.refill_amount}:{x.refill_period_seconds}" for x in ordered
    )
    return LimitSet(
        limits,
        hashlib.blake2s(text.encode(), digest_size=6).hexdigest(),
        {limit.name: limit for limit in limits},
        frozenset(limit.name for limit in limits),
        max((limit.seconds_to_fill for limit in limits), default=0.0),
    )


def validate_limits(limits: Sequence[Limit], field: str = "limits") -> tuple[Limit, ...]:
    """Check that there is at least one limit, and that no name occurs twice."""
    if isinstance(limits, Limit) or not isinstance(limits, Sequence):
        raise ValidationError(field, limits, "must be a list of Limit")
    for limit in limits:
        if not isinstance(limit, Limit):
            raise ValidationError(field, limit, f"must hold Limit, not {type(limit).__name__}")
    if not limits:
        raise ValidationError(field, limits, "must hold at least one limit")
    if len(limits) > MAX_LIMITS:
        raise ValidationError(field, len(limits), f"holds more than {MAX_LIMITS} limits")
    names = [limit.name for limit in limits]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValidationError(field, twice, f"names {', '.join(twice)} more than once")
    return tuple(limits)
