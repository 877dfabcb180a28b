"""The guide to migrating names every low-level method that has no namesake here."""

from __future__ import annotations

from pathlib import Path

import pytest

from zae_limiter import Repository

PAGE = Path(__file__).parent.parent.parent / "docs" / "migrating.md"
# The low-level methods of the existing package's Repository.
LOW_LEVEL = [
    "batch_get_buckets",
    "batch_get_configs",
    "batch_get_entity_and_buckets",
    "build_bucket_put_item",
    "build_bucket_update_item",
    "build_composite_adjust",
    "build_composite_create",
    "build_composite_normal",
    "build_composite_retry",
    "bump_shard_count",
    "create_stack",
    "delete_stack",
    "get_or_create_bucket",
    "get_provisioner_state",
    "put_provisioner_state",
    "reconcile_bucket_to_defaults",
    "select_shard",
    "speculative_consume",
    "transact_write",
    "write_each",
]


@pytest.mark.parametrize("name", LOW_LEVEL)
def test_a_low_level_method_exists_or_is_told_of(name: str) -> None:
    assert hasattr(Repository, name) or f"`{name}`" in PAGE.read_text(encoding="utf-8")
