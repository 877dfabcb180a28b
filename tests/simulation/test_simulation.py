from __future__ import annotations

from collections import Counter

import pytest

from tests.core.kinds import GAINED, STORED, UNSEEN, kind_of
from zae_limiter.core.writes import Adjust, Refill

from .campaign import kept_seeds, run_seed
from .properties import is_merge, is_split
from .watch import Ending
from .world import World

SEEDS = 2000
CHUNK = 125
QUICK_SEEDS = 250


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first < QUICK_SEEDS else pytest.mark.slow)
        for first in range(0, SEEDS, CHUNK)
    ],
)
def test_every_promise_holds_in_every_run(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed)


@pytest.mark.parametrize("seed", kept_seeds())
def test_seeds_that_failed_once_pass_now(seed: int) -> None:
    run_seed(seed)


def test_one_seed_always_makes_one_run() -> None:
    for seed in range(40):
        assert World(seed).run().truth.applied == World(seed).run().truth.applied


def test_different_seeds_make_different_runs() -> None:
    worlds = [World(seed).run() for seed in range(40)]
    endings = {tuple(story.decided_ms for story in world.watch.stories) for world in worlds}
    assert len(endings) == 40


def seen(world: World) -> Counter[str]:
    """What a run has in it."""
    found = Counter(story.ending.name for story in world.watch.stories)
    found["expired"] += len(world.truth.expired)
    for story in world.watch.stories:
        found["let through"] += story.lease is not None and story.lease.degraded
        found["in doubt"] += any(story.doubts.values())
        waited = story.timeout is not None and story.decided_ms > story.began_ms
        found["waited and served"] += waited and story.ending is Ending.SETTLED
        found["charged more"] += story.lease is not None and story.most_milli != story.consume
        found["corrected down"] += any(amount < 0 for amount in story.corrected.values())
        found["overridden"] += story.override is not None and story.ending is Ending.SETTLED
    for applied in world.truth.applied:
        write = applied.write
        found[kind_of(write)] += 1
        found["split"] += is_split(write)
        found["merge"] += is_merge(write)
        found["several shards"] += isinstance(write, Refill) and applied.address.shard > 0
        found["debt"] += any(cell.tokens_milli < 0 for cell in applied.after.cells.values())
        restamped = applied.before and applied.before.fingerprint != applied.after.fingerprint
        found["other limits"] += bool(restamped)
        found["refund"] += isinstance(write, Adjust) and write.acquires < 0
    return found


EVERYTHING = {
    *(ending.name for ending in Ending),
    *(
        "Create",
        "Refill",
        "Fill",
        STORED,
        GAINED,
        UNSEEN,
        "Adjust",
        "split",
        "merge",
        "several shards",
    ),
    *("in doubt", "let through", "waited and served", "overridden"),
    *("charged more", "corrected down", "debt", "refund", "other limits", "expired"),
}


@pytest.mark.slow
def test_the_runs_contain_every_kind_of_event() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        total += seen(World(seed).run())
        if all(total[name] >= 3 for name in EVERYTHING):
            return
    raise AssertionError(f"too little of {[n for n in EVERYTHING if total[n] < 3]}")
