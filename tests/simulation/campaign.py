"""This module runs seeds."""

from __future__ import annotations

from pathlib import Path

from zae_limiter.core.apply import apply

from .properties import check
from .receipt_world import ReceiptWorld, check_receipts
from .stream_world import StreamWorld, check_stream
from .truth import Apply
from .world import World

KEPT_SEEDS = Path(__file__).with_name("seeds.txt")


class Broken(AssertionError):
    """A seed under which a promise does not hold."""

    def __init__(self, seed: int, problem: BaseException, option: str = "") -> None:
        super().__init__(
            f"seed {seed}: {type(problem).__name__}: {problem}\n"
            f"replay with: python -m tests.simulation --seeds 1 --start {seed}{option}"
        )


def run_seed(seed: int, apply: Apply = apply) -> World:
    """Run one seed, and check the run."""
    try:
        world = World(seed, apply).run()
        check(world)
    except Exception as problem:
        raise Broken(seed, problem) from problem
    return world


def run_stream_seed(seed: int) -> StreamWorld:
    """Run one seed with readers of the stream, and check the run."""
    try:
        world = StreamWorld(seed).run()
        check_stream(world)
        check(world)
    except Exception as problem:
        raise Broken(seed, problem, " --stream") from problem
    return world


def run_receipt_seed(seed: int) -> ReceiptWorld:
    """Run one seed with receipts, and check the run."""
    world = ReceiptWorld(seed)
    try:
        world.run()
        check_receipts(world)
    except Exception as problem:
        raise Broken(seed, problem, " --receipts") from problem
    return world


def kept_seeds() -> list[int]:
    """Return the seeds that once failed."""
    lines = KEPT_SEEDS.read_text(encoding="utf-8").splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]
