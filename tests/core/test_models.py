from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from zae_limiter.core.limit import BucketState, Limit
from zae_limiter.core.models import (
    BackendCapabilities,
    CacheStats,
    Entity,
    LimiterConfig,
    LimitStatus,
    OnUnavailable,
)

RPM = Limit.per_minute("rpm", 60)


class TestEntity:
    def test_one_without_a_parent_may_be_a_parent(self) -> None:
        org = Entity("org")
        assert org.is_parent
        assert not org.is_child
        assert (org.name, org.cascade, org.metadata, org.created_at) == (None, False, {}, None)

    def test_one_with_a_parent_is_a_child(self) -> None:
        key = Entity("key", parent_id="org")
        assert key.is_child
        assert not key.is_parent

    def test_the_version_is_no_part_of_what_it_is(self) -> None:
        assert Entity("key", version=1) == Entity("key", version=2)
        assert Entity("key", name="A") != Entity("key", name="B")

    def test_metadata_is_not_shared(self) -> None:
        Entity("one").metadata["plan"] = "pro"
        assert Entity("two").metadata == {}


@pytest.mark.parametrize(
    ("available", "requested", "deficit"), [(5, 3, 0), (5, 5, 0), (5, 8, 3), (-2, 1, 3), (0, 0, 0)]
)
def test_a_deficit_is_what_is_missing(available: int, requested: int, deficit: int) -> None:
    status = LimitStatus("key", "gpt-4", "rpm", RPM, available, requested, True, 1.0)
    assert status.deficit == deficit


class TestBucketState:
    def test_from_a_limit_it_is_full(self) -> None:
        state = BucketState.from_limit("key", "gpt-4", RPM, 5)
        assert state == BucketState("key", "gpt-4", "rpm", 60_000, 5, 60_000, 60_000, 60_000, 0)

    @pytest.mark.parametrize(
        ("tokens_milli", "tokens"), [(0, 0), (999, 0), (1000, 1), (-1, -1), (-1000, -1)]
    )
    def test_tokens_are_whole(self, tokens_milli: int, tokens: int) -> None:
        state = BucketState("key", "gpt-4", "rpm", tokens_milli, 0, 1999, 1, 1)
        assert (state.tokens, state.capacity) == (tokens, 1)
        assert state.total_consumed_milli is None


class TestLimiterConfig:
    def test_limits_become_a_tuple(self) -> None:
        limits: Any = [RPM]
        assert LimiterConfig(limits=limits).limits == (RPM,)

    def test_only_what_is_said_is_in_the_dictionary(self) -> None:
        assert LimiterConfig().to_dict() == {}
        assert LimiterConfig(limits=(RPM,), config_version=3).to_dict() == {
            "limits": [RPM.to_dict()],
            "config_version": 3,
        }
        said = LimiterConfig((), "allow", auto_update=False, strict_version=True)
        assert said.to_dict() == {
            "limits": [],
            "on_unavailable": "allow",
            "auto_update": False,
            "strict_version": True,
        }

    def test_the_version_is_no_part_of_what_it_says(self) -> None:
        assert LimiterConfig((RPM,), config_version=1) == LimiterConfig((RPM,), config_version=2)

    def test_it_cannot_be_changed(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            LimiterConfig().limits = ()  # type: ignore[misc]


def test_a_store_can_do_nothing_that_it_does_not_say() -> None:
    assert not any(dataclasses.asdict(BackendCapabilities()).values())


def test_cache_stats_as_a_dictionary() -> None:
    stats = CacheStats(hits=3, misses=2, size=1, ttl_seconds=60.0)
    assert stats.as_dict() == {
        "hits": 3,
        "misses": 2,
        "size": 1,
        "ttl": 60.0,
        "local_rejections": 0,
    }


def test_on_unavailable_is_allow_or_block() -> None:
    assert [mode.value for mode in OnUnavailable] == ["allow", "block"]
