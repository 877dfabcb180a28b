"""Queries, page by page."""

from __future__ import annotations

import pytest

from tests.support.dynamodb import Costs, Runner
from zae_limiter.backends.dynamodb.pages import PAGE_ITEMS, Query, read_page, read_pages
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.wire.values import Item, to_item

COUNT = PAGE_ITEMS + 5


async def fill(store: DynamoStore, count: int, **values: object) -> None:
    puts = [
        {"PutRequest": {"Item": to_item({"PK": "p", "SK": f"{n:05}", **values})}}
        for n in range(count)
    ]
    for start in range(0, count, 25):
        request = {"RequestItems": {store.table.name: puts[start : start + 25]}}
        await store.table.call("BatchWriteItem", request)


def sort_keys(items: list[Item]) -> list[str]:
    return [item["SK"]["S"] for item in items]


def test_all_pages_are_read_to_the_end(store: DynamoStore, driver: Runner) -> None:
    driver.run(fill(store, COUNT))
    costs = Costs(store)
    found = driver.run(read_pages(store.table, Query("p")))
    assert sort_keys(found) == [f"{n:05}" for n in range(COUNT)]
    assert costs.calls == {"Query": 2}
    for limit in (1, PAGE_ITEMS, PAGE_ITEMS + 1, 10 * COUNT):
        found = driver.run(read_pages(store.table, Query("p"), limit))
        assert sort_keys(found) == [f"{n:05}" for n in range(min(limit, COUNT))]


def test_pages_end_where_an_answer_is_full(store: DynamoStore, driver: Runner) -> None:
    """An answer holds at most a megabyte, however many items are wanted."""
    driver.run(fill(store, 75, text="x" * 30_000))
    costs = Costs(store)
    assert len(driver.run(read_pages(store.table, Query("p")))) == 75
    assert costs.calls["Query"] >= 3


def test_a_page_tells_where_the_next_one_starts(store: DynamoStore, driver: Runner) -> None:
    driver.run(fill(store, 5))
    found, start = [], None
    for _ in range(3):
        items, start = driver.run(read_page(store.table, Query("p"), start, limit=2))
        found.append(sort_keys(items))
    assert found == [["00000", "00001"], ["00002", "00003"], ["00004"]]
    assert start is None


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (Query("p", "0001"), ["00010", "00011"]),
        (Query("p", low="00003", high="00005"), ["00003", "00004", "00005"]),
        (Query("p", low="00010", high="~", newest_first=True), ["00011", "00010"]),
        (Query("nobody"), []),
    ],
    ids=str,
)
def test_a_part_of_a_partition(
    store: DynamoStore, driver: Runner, query: Query, wanted: list[str]
) -> None:
    driver.run(fill(store, 12))
    assert sort_keys(driver.run(read_pages(store.table, query))) == wanted


def test_only_the_attributes_that_are_wanted(store: DynamoStore, driver: Runner) -> None:
    driver.run(fill(store, 1, name="x", status="y"))
    (item,) = driver.run(read_pages(store.table, Query("p", attributes=("SK", "status"))))
    assert item == to_item({"SK": "00000", "status": "y"})


def test_an_index_has_its_own_keys(store: DynamoStore, driver: Runner) -> None:
    driver.run(fill(store, 3, PK="ns/p", GSI3PK="ns/q", GSI3SK="s", name="not projected"))
    found = driver.run(read_pages(store.table, Query("ns/q", "s", index="GSI3")))
    assert {frozenset(item) for item in found} == {frozenset(("PK", "SK", "GSI3PK", "GSI3SK"))}
    assert len(found) == 3
