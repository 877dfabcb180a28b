"""Travelling with others in a lane that is not free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ...core.bucket import BucketAddress
from ...core.exceptions import StorageUnavailable
from ..acquire.charge import Charge
from ..scope import Scope
from .queue import Correction, Lanes, Rider

T = TypeVar("T")
Together = Callable[[Sequence[Rider]], Awaitable[None]]
"""Carry out the loads of all riders as one, and give each its outcome."""


async def fly(
    scope: Scope,
    address: BucketAddress,
    load: Charge | Correction,
    alone: Callable[[], Awaitable[T]],
    together: Together,
    can_ride: Callable[[Rider], bool],
) -> T | Rider:
    """What comes of it alone, if the lane is free; else the rider, with its outcome."""
    try:
        if scope.lanes.start(address, load):
            return await alone()
    finally:
        try:
            scope.lanes.leave(address, load)
        except BaseException:
            scope.lanes.leave(address, load)
            raise
    return await ride(scope, address, load, together, can_ride)


async def ride(
    scope: Scope,
    address: BucketAddress,
    load: Charge | Correction,
    together: Together,
    can_ride: Callable[[Rider], bool],
) -> Rider:
    """Wait for the next flight, or be its pilot; returns with the outcome, or raises it."""
    rider = Rider(scope.io.signal(), load)
    try:
        scope.lanes.join(address, rider)
        interruption = await _wait(scope.lanes, address, rider)
        if rider.is_pilot:
            await _pilot(scope, address, rider, together, can_ride)
    finally:
        if rider.is_pilot or not rider.has_boarded:
            try:
                scope.lanes.leave(address, rider)
            except BaseException:
                scope.lanes.leave(address, rider)
                raise
    if interruption is not None:
        raise interruption
    if isinstance(rider.outcome, BaseException):
        raise rider.outcome
    return rider


async def _wait(lanes: Lanes, address: BucketAddress, rider: Rider) -> BaseException | None:
    """Until this rider is the pilot, or its flight has ended.

    Whoever is interrupted before boarding leaves the line. One whose charge is under way must
    know what came of it before it can be given back, and a correction is never given up: an
    interruption that the driver does not hold back is returned, to be raised afterwards.
    """
    interruption: BaseException | None = None
    is_patient = isinstance(rider.load, Correction)
    while not rider.is_over:
        try:
            await (rider.signal.hold() if is_patient else rider.signal.wait(None))
        except BaseException as error:
            if not (is_patient and rider.is_over):
                is_lost = is_patient or isinstance(error, GeneratorExit)
                if lanes.give_up(address, rider) or is_lost:
                    raise
            interruption, is_patient = interruption or error, True
    return interruption


async def _pilot(
    scope: Scope,
    address: BucketAddress,
    pilot: Rider,
    together: Together,
    can_ride: Callable[[Rider], bool],
) -> None:
    riders = [pilot]
    failure: BaseException | None = None
    try:
        if scope.coalesces:
            if scope.linger_s:
                await scope.io.pause(scope.linger_s)
            scope.lanes.board(address, riders, can_ride)
        await together(riders)
    except BaseException as error:
        failure = error
        if not isinstance(error, Exception):
            raise
    finally:
        try:
            _land(riders, failure)
        except BaseException:
            _land(riders, failure)
            raise


def _land(riders: Sequence[Rider], failure: BaseException | None) -> None:
    """One flight failing fails its riders. What is no failure of the flight, such as an
    interrupt, is the pilot's alone; the others only learn that nobody knows the outcome."""
    for rider in riders:
        if rider.outcome is None:
            shared = rider is riders[0] or isinstance(failure, Exception)
            interrupted = StorageUnavailable("The write was interrupted", failure, ambiguous=True)
            rider.outcome = failure if failure is not None and shared else interrupted
        rider.signal.set()
