"""The scenario of the demo: an organisation whose two keys cascade to it, and busy callers.

The keys together may take more than the organisation, so both levels have to refuse.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from random import Random
from typing import Literal

from ...core.limit import Limit
from ...sync_repository import SyncRepository

RESOURCE = "gpt-4"
ORGANISATION = "acme"
KEYS = ("acme-web", "acme-batch")
REQUESTS = "rps"
TOKENS = "tps"
LIMITS: dict[str, tuple[Limit, ...]] = {
    ORGANISATION: (
        Limit.per_second(REQUESTS, 40, burst=60),
        Limit.per_second(TOKENS, 4_000, burst=6_000),
    ),
    KEYS[0]: (Limit.per_second(REQUESTS, 30), Limit.per_second(TOKENS, 2_500)),
    KEYS[1]: (Limit.per_second(REQUESTS, 20), Limit.per_second(TOKENS, 3_000)),
}

_CALLERS = 3
_PAUSE_S = 0.03
_USUAL_WORKERS = 4
_FAILING = 0.08

Style = Literal["asyncio", "threads"]


@dataclass(frozen=True, slots=True)
class Job:
    """A job tells one worker process what to do."""

    worker: int
    style: Style
    url: str
    namespace: str
    callers: int
    pause_s: float

    def to_text(self) -> str:
        """Return the job as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Job:
        """Return the job that `to_text` wrote."""
        return cls(**json.loads(text))


def jobs(url: str, namespace: str, workers: int) -> list[Job]:
    """Return a job for each worker. The last of several workers uses threads, the others asyncio.
    The more workers there are, the longer each pauses, so that all together ask as much as four
    would."""
    pause_s = _PAUSE_S * max(1.0, workers / _USUAL_WORKERS)
    return [
        Job(number, _style(number, workers), url, namespace, _CALLERS, pause_s)
        for number in range(1, workers + 1)
    ]


def _style(number: int, workers: int) -> Style:
    return "threads" if number == workers > 1 else "asyncio"


def set_up(repository: SyncRepository) -> None:
    """Store the entities and their limits."""
    repository.create_entity(ORGANISATION)
    for key in KEYS:
        repository.create_entity(key, parent_id=ORGANISATION, cascade=True)
    for entity_id, limits in LIMITS.items():
        repository.set_limits(entity_id, list(limits), RESOURCE)


@dataclass(frozen=True, slots=True)
class Errand:
    """An errand is one call of a caller: its estimated cost, and how the call turns out."""

    entity_id: str
    estimate: int
    correction: int
    fails: bool
    seconds: float

    @property
    def takes(self) -> dict[str, int]:
        """The amounts to acquire."""
        return {REQUESTS: 1, TOKENS: self.estimate}


def next_errand(random: Random) -> Errand:
    """Draw the next errand."""
    estimate = random.randint(40, 200)
    return Errand(
        entity_id=random.choice(KEYS),
        estimate=estimate,
        correction=random.randint(-estimate // 2, estimate // 2),
        fails=random.random() < _FAILING,
        seconds=random.uniform(0.002, 0.02),
    )
