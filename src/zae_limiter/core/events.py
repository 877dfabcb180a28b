"""Events that a limiter tells its listeners of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

AcquireEnding = Literal["admitted", "refused", "degraded", "unavailable", "failed"]


@dataclass(frozen=True, slots=True)
class AcquireEvent:
    """An acquire that begins: who asks for how many tokens of what."""

    namespace: str
    entity_id: str
    resource: str
    consume: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AcquireOutcome:
    """The end of an acquire. `degraded`: let through without a charge while the store was down;
    `unavailable`: failed then; `failed`: anything else, such as a cancellation."""

    ending: AcquireEnding
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class LostWrite:
    """A refund or a correction that could not be written: the charge stays as it was.

    `amounts`: the change of the charge in whole tokens, by limit.
    """

    kind: Literal["refund", "correction"]
    namespace_id: str
    entity_id: str
    resource: str
    shard: int
    amounts: Mapping[str, int]
    error: BaseException
