"""A scenario is what a seed decides before a run. Each kind of trouble is in some runs and not in
others, so that none hides another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from zae_limiter import Limit
from zae_limiter.runtime.simulated_faults import Faults

MOST_CLOCK_STEPS = 3
RESOURCE = "api"
NAMES = ("requests", "tokens")

# Each entity and its parent; all of them cascade.
PARENTS = {
    "alone": None,
    "child-1": "parent",
    "child-2": "parent",
    "parent": None,
    "key-1": "project",
    "key-2": "project",
    "project": "company",
    "company": None,
}
LEAVES = ("alone", "child-1", "child-2", "key-1", "key-2")
ANCESTORS = ("parent", "project", "company")


def chain(entity_id: str) -> list[str]:
    """The entity and its ancestors."""
    parent_id = PARENTS[entity_id]
    return [entity_id] if parent_id is None else [entity_id, *chain(parent_id)]


@dataclass(frozen=True)
class Scenario:
    """A scenario says how many clients and tasks there are, and which troubles they meet."""

    clients: int
    workers: int
    jobs: int
    entities: tuple[str, ...]
    defaults: tuple[Limit, ...]
    limits: dict[str, tuple[Limit, ...]]
    faults: Faults
    skew_ms: int
    clock_steps: int
    jump_ms: int
    cache_ttl_s: int
    crashes: int
    cancellations: int
    cuts: int
    changes: int
    overrides: bool
    waits: bool
    speculative: bool
    metered: bool
    splits: int
    coalesces: bool
    linger_s: float
    refusal_ttl_s: int
    expiries: int

    @property
    def has_wild_steps(self) -> bool:
        """True when clocks may step by an hour or a year."""
        return self.clock_steps == MOST_CLOCK_STEPS

    @property
    def is_punctual(self) -> bool:
        """True when all clocks are right."""
        return not self.skew_ms and not self.clock_steps

    @property
    def changes_limits(self) -> bool:
        return bool(self.changes) or self.overrides


def draw_limit(rng: Random, name: str) -> Limit:
    """Small, so that it is often short; from one that fills in a second to one that hardly does."""
    return Limit(name, rng.randint(1, 8), rng.randint(1, 6), rng.choice((1, 1, 2, 7, 60)))


def draw_limits(rng: Random) -> tuple[Limit, ...]:
    """Both limits."""
    return tuple(draw_limit(rng, name) for name in NAMES)


def draw_parent_limits(rng: Random) -> tuple[Limit, ...]:
    """One limit or both: an ancestor need not limit all that its descendants do."""
    both = draw_limits(rng)
    return rng.choice((both, both, both[:1], both[1:]))


def draw_scenario(rng: Random) -> Scenario:
    """The scenario of a seed."""
    scenario = _draw_troubles(rng)
    return _crowd(scenario) if rng.random() < 0.1 else scenario


def _crowd(scenario: Scenario) -> Scenario:
    """Draw many tasks at one bucket, and no trouble that would excuse a refusal."""
    return replace(
        scenario,
        clients=3,
        workers=6,
        jobs=2,
        entities=("alone",),
        faults=Faults(max_delay_ms=scenario.faults.max_delay_ms),
        skew_ms=0,
        clock_steps=0,
        changes=0,
        expiries=0,
        overrides=False,
        waits=False,
        coalesces=True,
        refusal_ttl_s=0,
    )


def _draw_troubles(rng: Random) -> Scenario:

    def sometimes(chance: float, most: int) -> int:
        return rng.randint(1, most) if rng.random() < chance else 0

    family = rng.choice((("alone",), ("child-1", "child-2"), ("key-1", "key-2"), LEAVES))
    metered = rng.random() < 0.3
    return Scenario(
        clients=rng.randint(1, 3),
        workers=rng.choice((1, 2, 3) if metered else (1, 2, 3, 3, 6)),
        jobs=rng.randint(1, 3),
        entities=family,
        defaults=draw_limits(rng),
        limits={entity_id: draw_parent_limits(rng) for entity_id in ANCESTORS},
        faults=_draw_faults(rng),
        skew_ms=sometimes(0.3, 2000),
        clock_steps=sometimes(0.15, MOST_CLOCK_STEPS),
        jump_ms=sometimes(0.4, 20),
        cache_ttl_s=rng.choice((0, 1, 2)),
        crashes=sometimes(0.2, 2),
        cancellations=sometimes(0.3, 3),
        cuts=sometimes(0.15, 2),
        changes=sometimes(0.3, 3),
        overrides=rng.random() < 0.2,
        waits=rng.random() < 0.4,
        speculative=rng.random() < 0.8,
        metered=metered,
        splits=sometimes(0.7, 4) if metered else 0,
        coalesces=rng.random() < 0.4,
        linger_s=rng.choice((0, 0, 0.005)),
        refusal_ttl_s=rng.choice((0, 0, 1)),
        expiries=sometimes(0.1, 6),
    )


def _draw_faults(rng: Random) -> Faults:
    def chance() -> float:
        return rng.choice((0.0, 0.0, 0.03, 0.12))

    return Faults(chance(), chance(), chance(), rng.choice((0, 0, 3, 40, 300)))
