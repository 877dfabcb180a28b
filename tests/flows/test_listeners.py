"""Listeners are told how acquires begin and end, and of writes that are given up."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.flows.test_outages import ALLOW, Outage, on_a_file
from tests.support.drivers import World, take
from zae_limiter import (
    AcquireEvent,
    AcquireOutcome,
    Limit,
    LostWrite,
    RateLimiterUnavailable,
    RateLimitExceeded,
)


class Told:
    """A listener that remembers what it is told."""

    def __init__(self) -> None:
        self.acquires: list[tuple[AcquireEvent, AcquireOutcome]] = []
        self.lost: list[LostWrite] = []

    @property
    def endings(self) -> list[str]:
        return [outcome.ending for _, outcome in self.acquires]

    def acquire_began(self, event: AcquireEvent) -> AcquireEvent:
        return event

    def acquire_ended(self, begun: AcquireEvent, outcome: AcquireOutcome) -> None:
        self.acquires.append((begun, outcome))

    def write_lost(self, lost: LostWrite) -> None:
        self.lost.append(lost)


class Failing:
    """A listener that fails."""

    def acquire_began(self, event: Any) -> None:
        raise KeyError("began")

    def acquire_ended(self, begun: Any, outcome: Any) -> None:
        raise KeyError("ended")

    def write_lost(self, lost: Any) -> None:
        raise KeyError("lost")


@pytest.fixture
async def told(world: World) -> Told:
    await world.repository.set_system_defaults([Limit.per_day("rpm", 3)])
    listener = Told()
    world.repository.listen(listener)
    return listener


async def test_a_listener_is_told_how_acquires_end(world: World, told: Told) -> None:
    limiter = world.limiter()
    await take(limiter, rpm=2)
    with pytest.raises(RateLimitExceeded) as refused:
        await take(limiter, rpm=2)
    assert told.endings == ["admitted", "refused"]
    event, outcome = told.acquires[1]
    assert event == AcquireEvent("default", "key-1", "gpt-4", {"rpm": 2})
    assert outcome.error is refused.value


@on_a_file
async def test_a_listener_is_told_of_an_outage_and_of_the_writes_it_cost(
    world: World, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = world.limiter()
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}) as lease:
        await lease.adjust(rpm=1)
        outage = Outage(world.path)
        with outage:
            await take(limiter, on_unavailable=ALLOW, rpm=1)
            with pytest.raises(RateLimiterUnavailable):
                await take(limiter, rpm=1)
            with pytest.raises(RateLimiterUnavailable):
                await lease.commit(rpm=1)
    assert told.endings == ["admitted", "degraded", "unavailable"]
    (lost,) = told.lost
    assert (lost.kind, lost.entity_id, lost.resource, lost.amounts) == (
        *("correction", "key-1", "gpt-4"),
        {"rpm": -1},
    )
    assert world.repository.get_stats().lost == 1
    fields = [getattr(record, "zae_limiter", None) for record in caplog.records]
    written = {field["event"]: field for field in fields if field}
    assert written["failed_write"]["amounts"] == {"rpm": -1}
    assert written["failed_write"]["address"]["entity_id"] == "key-1"
    assert written["degraded"]["resource"] == "gpt-4"
    assert json.loads(json.dumps(written)) == written


async def test_a_listener_that_fails_changes_nothing_and_is_logged(
    world: World, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    world.repository.listen(Failing())
    after = Told()
    world.repository.listen(after)
    with caplog.at_level(logging.ERROR):
        await take(world.limiter(), rpm=1)
    assert (told.endings, after.endings) == (["admitted"], ["admitted"])
    assert [record.message[:17] for record in caplog.records] == ["A listener failed"]
