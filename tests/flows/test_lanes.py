from __future__ import annotations

from dataclasses import dataclass

import pytest

from zae_limiter import StorageUnavailable
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.flows.coalesce import queue as lanes_module
from zae_limiter.flows.coalesce.queue import Correction, Lanes, Rider

HERE = BucketAddress("ns", "key-1", "gpt-4")
THERE = BucketAddress("ns", "key-2", "gpt-4")


@dataclass
class Bell:
    """A signal that counts how often it was rung. `works`: someone is there to hear it."""

    works: bool = True
    rung: int = 0

    def set(self) -> bool:
        self.rung += 1
        return self.works

    async def wait(self, seconds: float | None) -> bool:
        return self.rung > 0

    async def hold(self) -> None: ...


def rider(bell: Bell) -> Rider:
    return Rider(bell, Correction({}, 0))


def in_line(lanes: Lanes, count: int) -> tuple[list[Bell], list[Rider]]:
    bells = [Bell() for _ in range(count)]
    riders = [rider(bell) for bell in bells]
    for each in riders:
        lanes.join(HERE, each)
    return bells, riders


def test_those_who_wait_fly_in_the_order_in_which_they_came() -> None:
    lanes, first = Lanes(), object()
    assert lanes.start(HERE, first)
    bells, riders = in_line(lanes, 3)
    who: object = first
    for following, bell in zip(riders, bells, strict=True):
        assert not following.is_pilot
        lanes.leave(HERE, who)
        assert (following.is_pilot, bell.rung) == (True, 1)
        who = following
    lanes.leave(HERE, who)
    assert lanes.start(HERE, first)


def test_who_never_had_the_lane_wakes_nobody_by_leaving_it() -> None:
    lanes, first = Lanes(), object()
    lanes.start(HERE, first)
    (bell, *_), (pilot, waiting) = in_line(lanes, 2)
    lanes.leave(HERE, first)
    for _ in range(5):
        lanes.leave(HERE, object())
        assert not lanes.start(HERE, object())
    assert bell.rung == 1
    assert (pilot.is_pilot, waiting.is_pilot) == (True, False)


def test_one_who_gives_up_leaves_the_others_in_their_order() -> None:
    lanes, first = Lanes(), object()
    lanes.start(HERE, first)
    _, (one, two, three) = in_line(lanes, 3)
    assert lanes.give_up(HERE, two)
    aboard: list[Rider] = []
    lanes.board(HERE, aboard, lambda each: True)
    assert aboard == [one, three]
    assert not lanes.give_up(HERE, one)
    lanes.leave(HERE, first)
    assert lanes.start(HERE, first)


def test_who_cannot_be_woken_is_passed_over() -> None:
    lanes, first = Lanes(), object()
    lanes.start(HERE, first)
    bells, (gone, next_one) = in_line(lanes, 2)
    bells[0].works = False
    lanes.leave(HERE, first)
    assert (gone.is_pilot, next_one.is_pilot) == (False, True)


def test_lanes_of_different_items_do_not_meet() -> None:
    lanes, first = Lanes(), object()
    assert lanes.start(HERE, first)
    assert lanes.start(THERE, first)
    _, (waiting,) = in_line(lanes, 1)
    lanes.leave(THERE, first)
    assert not waiting.is_pilot


def test_charges_are_turned_away_from_a_line_that_is_too_long_and_corrections_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes_module, "MAX_WAITING", 2)
    lanes = Lanes()
    lanes.start(HERE, object())
    in_line(lanes, 2)
    charge = Rider(Bell(), load=None)  # type: ignore[arg-type]
    with pytest.raises(StorageUnavailable):
        lanes.join(HERE, charge)
    in_line(lanes, 1)
