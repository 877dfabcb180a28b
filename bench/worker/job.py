"""What one process is told to do, and what it reports."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

Measure = Literal["pace", "footprint"]


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit: so much at once, and as much again in every period."""

    name: str
    capacity: int
    period_s: int


@dataclass(frozen=True, slots=True)
class Job:
    """A measurement. `adapter` names the class to measure, as `module:class`.

    Each acquire takes `takes[i]` of `quotas[i]`, from the entity and from its ancestors if
    there are `levels`, and charges more afterwards if it `adjusts`. Before the clock starts,
    the last of the entities are `drained`, each entity is acquired once if `populate` is set,
    then `warmup` acquires are made. The clock stops after `seconds` or `calls`.

    `tasks` is for those that can have several acquires under way at once; if they are `apart`,
    each has an entity of its own. `server` and `place`: the server of the limits, and a name
    there that no other measurement has.
    """

    adapter: str
    distribution: str
    quotas: tuple[Quota, ...]
    takes: tuple[int, ...]
    entities: int = 1
    levels: int = 1
    drained: int = 0
    adjusts: bool = False
    tasks: int = 1
    apart: bool = False
    populate: bool = False
    warmup: int = 200
    seconds: float = 1.0
    calls: int | None = None
    measure: Measure = "pace"
    directory: str = ""
    server: str = ""
    place: str = ""

    def to_text(self) -> str:
        """For the command line of the process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Job:
        """The inverse of `to_text`."""
        fields = json.loads(text)
        quotas = tuple(Quota(**quota) for quota in fields.pop("quotas"))
        return cls(quotas=quotas, takes=tuple(fields.pop("takes")), **fields)

    def ancestry(self, entity: str) -> list[str]:
        """An entity and its ancestors."""
        return [entity, *(f"{entity}-level-{level}" for level in range(2, self.levels + 1))]


@dataclass(frozen=True, slots=True)
class Report:
    """What a process saw. Times of day are seconds since the epoch.

    `permilles_us`: the latency that 0.1 %, 0.2 %, ... of the calls did not exceed.
    """

    version: str
    calls: int = 0
    admitted: int = 0
    began_s: float = 0.0
    ended_s: float = 0.0
    cpu_s: float = 0.0
    permilles_us: tuple[float, ...] = ()
    footprint_bytes: int = 0

    def to_text(self) -> str:
        """One line of standard output."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Report:
        """The inverse of `to_text`."""
        fields = json.loads(text)
        return cls(permilles_us=tuple(fields.pop("permilles_us")), **fields)
