from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from zae_limiter.core.hierarchy import (
    SYSTEM_SLOT,
    ConfigSlot,
    decide,
    own_slots,
    shared_slots,
    slots,
)
from zae_limiter.core.limit import Limit
from zae_limiter.core.models import ConfigSource, LimiterConfig

SOURCES: tuple[ConfigSource, ...] = get_args(ConfigSource)
SLOTS: dict[ConfigSource, ConfigSlot] = {
    "entity": ConfigSlot("key", "gpt-4"),
    "entity_default": ConfigSlot("key", "_default_"),
    "resource": ConfigSlot(None, "gpt-4"),
    "system": ConfigSlot(None, None),
}
SAID = {source: LimiterConfig((Limit.per_minute(f"{source}-limit", 1),)) for source in SOURCES}


def test_the_strongest_level_comes_first() -> None:
    assert slots("key", "gpt-4") == tuple(SLOTS.values())
    assert SLOTS["system"] == SYSTEM_SLOT


def test_for_the_default_resource_only_the_entity_and_the_system_can_say() -> None:
    assert slots("key", "_default_") == (SLOTS["entity_default"], SLOTS["system"])


@pytest.mark.parametrize("resource", ["gpt-4", "_default_"])
def test_places_are_either_the_entitys_own_or_shared_by_all(resource: str) -> None:
    own, shared = own_slots("key", resource), shared_slots(resource)
    assert own + shared == slots("key", resource)
    assert {slot.entity_id for slot in own} == {"key"}
    assert {slot.entity_id for slot in shared} == {None}


@pytest.mark.parametrize("present", list(product([False, True], repeat=4)))
def test_the_first_level_that_has_limits_wins_as_a_whole(present: tuple[bool, ...]) -> None:
    there = [source for source, is_there in zip(SOURCES, present, strict=True) if is_there]
    stored = {SLOTS[source]: SAID[source] for source in there}
    expected = (SAID[there[0]].limits, there[0]) if there else (None, None)
    assert decide(slots("key", "gpt-4"), stored) == expected


@pytest.mark.parametrize("silent", [None, LimiterConfig(), LimiterConfig(())])
@pytest.mark.parametrize("present", list(product([False, True], repeat=4)))
def test_a_level_without_limits_is_passed_over(
    present: tuple[bool, ...], silent: LimiterConfig | None
) -> None:
    stored = {
        SLOTS[source]: SAID[source] if is_there else silent
        for source, is_there in zip(SOURCES, present, strict=True)
    }
    there = [source for source, is_there in zip(SOURCES, present, strict=True) if is_there]
    assert decide(slots("key", "gpt-4"), stored)[1] == (there[0] if there else None)


def test_configuration_of_other_slots_does_not_count() -> None:
    stored = {
        ConfigSlot("other", "gpt-4"): SAID["entity"],
        ConfigSlot("key", "gpt-3"): SAID["entity"],
        ConfigSlot(None, "gpt-3"): SAID["resource"],
        SYSTEM_SLOT: SAID["system"],
    }
    assert decide(slots("key", "gpt-4"), stored) == (SAID["system"].limits, "system")


@pytest.mark.parametrize("present", list(product([None, False, True], repeat=4)))
def test_a_level_that_inherits_adds_the_limits_of_the_next(
    present: tuple[bool | None, ...],
) -> None:
    stored: dict[ConfigSlot, LimiterConfig | None] = {}
    expected: dict[str, int] = {}
    is_open = True
    for strength, (source, inherit) in enumerate(zip(SOURCES, present, strict=True)):
        if inherit is None:
            continue
        limits = (Limit.per_minute("rpm", strength + 1), Limit.per_minute(source, strength + 1))
        stored[SLOTS[source]] = LimiterConfig(limits, inherit=inherit)
        if is_open:
            expected = {limit.name: limit.capacity for limit in limits} | expected
        is_open = is_open and inherit
    limits_found, source_found = decide(slots("key", "gpt-4"), stored)
    assert {limit.name: limit.capacity for limit in limits_found or ()} == expected
    there = [s for s, inherit in zip(SOURCES, present, strict=True) if inherit is not None]
    assert source_found == (there[0] if there else None)
