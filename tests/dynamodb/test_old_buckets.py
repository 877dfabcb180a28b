"""Buckets of older shapes are moved by whoever needs them, and no balance grows by it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.old_table import OldTable, old_keys, takes
from tests.support.old_tables import SHAPES, Shape, old_bucket
from tests.support.servers.processes import Server
from zae_limiter import Limit, StoredDataError, SyncRateLimiter, SyncRepository

RPM = Limit.per_day("rpm", 10)
_HOUR_MS = 3_600_000


@pytest.fixture
def table(dynamodb: Server) -> Iterator[OldTable]:
    made = OldTable(dynamodb)
    yield made
    made.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_client_moves_the_bucket_that_it_needs(table: OldTable, shape: Shape) -> None:
    left = {"rpm": (4, 10), "tpm": (300, 1000)}
    ns = table.namespace_id
    table.put(*old_bucket(shape, "key-1", "gpt-4", left, table.now_ms, ns))
    table.put(*old_bucket(shape, "key-1", "gpt-4o", {"rpm": (1, 10)}, table.now_ms, ns))
    table.be_of("0.9.0")
    with table.connect() as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM, Limit.per_day("tpm", 1000)])
        assert limiter.available("key-1", "gpt-4") == {"rpm": 4, "tpm": 300}
        assert {b.resource for b in repository.get_buckets("key-1")} == {"gpt-4", "gpt-4o"}
        assert takes(limiter, rpm=3, tpm=100)
        assert not takes(limiter, rpm=2)
        assert limiter.available("key-1", "gpt-4") == {"rpm": 1, "tpm": 200}
        assert limiter.available("key-1", "gpt-4o")["rpm"] == 1
    assert {sk for _, sk in old_keys(table) if sk.startswith("#BUCKET#gpt-4#")} == set()
    assert any(sk.startswith("#BUCKET#gpt-4o") for _, sk in old_keys(table))
    moved = table.items()[f"{ns}/BUCKET#key-1#gpt-4#0", "#STATE"]
    # What the old item had consumed was counted as usage before.
    assert (moved["b_rpm_tc"], moved["b_tpm_tc"]) == (3000, 100_000)


def test_limits_that_were_refilled_at_different_times_gain_what_each_is_due(
    table: OldTable,
) -> None:
    """Half a day of 10 a day is 5; nothing is gained beyond the ceiling."""
    early, late = table.now_ms - 43_200_000, table.now_ms
    table.put(*old_bucket("flat", "key-1", "gpt-4", {"rpm": (1, 10), "x": (9, 10)}, early))
    table.put(*old_bucket("nested", "key-1", "gpt-4", {"tpm": (20, 100)}, late))
    table.be_of("0.9.0")
    with table.connect() as repository:
        found = {b.limit_name: b for b in repository.get_buckets("key-1", "gpt-4")}
    assert {name: bucket.tokens for name, bucket in found.items()} == {"rpm": 6, "tpm": 20, "x": 10}
    assert {bucket.last_refill_ms for bucket in found.values()} == {late}


@pytest.mark.parametrize("page_items", [500, 1])
@pytest.mark.parametrize(
    ("newer", "older"), [("prefixed", "flat"), ("flat", "composite"), ("flat", "prefixed")]
)
def test_of_two_generations_of_a_bucket_the_one_refilled_last_is_in_force(
    table: OldTable,
    newer: Shape,
    older: Shape,
    page_items: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever a scan comes upon first: an older version left the fuller one behind."""
    monkeypatch.setattr("zae_limiter.backends.dynamodb.older.moving._PAGE_ITEMS", page_items)
    ns, early_ms = table.namespace_id, table.now_ms - _HOUR_MS
    for name in ("key-1", "key-2", "key-3"):
        table.put(*old_bucket(newer, name, "gpt-4", {"rpm": (0, 24)}, table.now_ms, ns))
        left = {"rpm": (24, 24), "tpm": (1, 24)}
        table.put(*old_bucket(older, name, "gpt-4", left, early_ms, ns))
    table.be_of("0.9.0")
    with table.connect() as repository:
        met = {b.limit_name: b.tokens for b in repository.get_buckets("key-1", "gpt-4")}
    assert met == {"rpm": 0, "tpm": 2}
    assert table.migrate("--yes").exit_code == 0
    moved = {k: v for k, v in table.items().items() if "/BUCKET#" in k[0]}
    assert len(moved) == 3
    assert {(v["b_rpm_tk"], v["b_tpm_tk"]) for v in moved.values()} == {(0, 2000)}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_generations_of_one_time_the_smaller_balance_is_in_force(
    table: OldTable, order: int
) -> None:
    shapes: tuple[Shape, Shape] = ("composite", "prefixed")
    for shape, left in zip(shapes[::order], (3, 9), strict=True):
        balance, ns = {"rpm": (left, 10)}, table.namespace_id
        table.put(*old_bucket(shape, "key-1", "gpt-4", balance, table.now_ms, ns))
    table.be_of("0.9.0")
    with table.connect() as repository:
        assert [b.tokens for b in repository.get_buckets("key-1", "gpt-4")] == [3]


def test_a_refill_time_that_is_ahead_gains_other_limits_nothing(table: OldTable) -> None:
    ahead_ms = table.now_ms + 24 * _HOUR_MS
    table.put(*old_bucket("flat", "key-1", "gpt-4", {"rpm": (4, 10)}, ahead_ms))
    table.put(*old_bucket("nested", "key-1", "gpt-4", {"tpm": (2, 10)}, table.now_ms))
    table.be_of("0.9.0")
    with table.connect() as repository:
        found = {b.limit_name: b.tokens for b in repository.get_buckets("key-1", "gpt-4")}
    assert found == {"rpm": 4, "tpm": 2}


def test_a_repository_that_was_not_opened_moves_the_bucket_that_it_needs(table: OldTable) -> None:
    """Such a repository works under the namespace id `default` itself."""
    left = {"rpm": (4, 10)}
    table.put(*old_bucket("prefixed", "key-1", "gpt-4", left, table.now_ms, "default"))
    table.be_of("0.9.0")
    place = (table.place["stack"], table.place["region"], table.place["endpoint_url"])
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        repository = SyncRepository(*place)
    with repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM])
        assert takes(limiter, rpm=4)
        assert not takes(limiter, rpm=1)


def test_the_levels_of_a_chain_are_moved_and_charged_all_or_none(table: OldTable) -> None:
    for entity_id, left in (("key-1", 8), ("acme", 3)):
        table.put(*old_bucket("hybrid", entity_id, "gpt-4", {"rpm": (left, 10)}, table.now_ms))
    table.be_of("0.9.0")
    with table.connect() as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM])
        limiter.create_entity("acme")
        limiter.create_entity("key-1", parent_id="acme", cascade=True)
        assert not takes(limiter, rpm=4)
        assert takes(limiter, rpm=3)
        assert limiter.available("acme", "gpt-4") == {"rpm": 0}
        assert [b.tokens for b in repository.get_buckets("key-1", "gpt-4")] == [5]


def test_an_entity_that_is_deleted_takes_its_old_bucket_along(table: OldTable) -> None:
    table.put(*old_bucket("nested", "key-1", "gpt-4", {"rpm": (0, 10)}, table.now_ms))
    table.be_of("0.9.0")
    with table.connect() as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM])
        limiter.create_entity("key-1")
        limiter.delete_entity("key-1")
        assert old_keys(table) == []
        assert takes(limiter, rpm=10)


def test_a_damaged_old_bucket_is_an_error_for_the_client_that_needs_it(table: OldTable) -> None:
    table.put({"PK": "ENTITY#key-1", "SK": "#BUCKET#gpt-4#rpm", "tokens_milli": 5})
    table.be_of("0.9.0")
    with table.connect() as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPM])
        with pytest.raises(StoredDataError, match="capacity_milli"):
            takes(limiter, rpm=1)
        assert takes(limiter, "key-2", rpm=10)
