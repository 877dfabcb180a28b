"""Queries, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .expressions import Field, Term, request_fields
from .table import Table
from .wire.values import Item

PAGE_ITEMS = 1000
# No sort key contains a character beyond this one, so it ends the keys that start alike.
AFTER_ALL = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Query:
    """A query finds items of one partition in the order of their sort keys.

    Sort keys lie between `low` and `high`, both included, or start with `prefix`. `index`: a
    global index, whose answers may be a moment old. `attributes`: those to return, if not all.
    """

    partition: str
    prefix: str = ""
    low: str = ""
    high: str = ""
    index: str = ""
    newest_first: bool = False
    attributes: tuple[str, ...] = ()

    def request(self, table_name: str) -> dict[str, Any]:
        """Return the parameters of a `Query`."""
        return {
            "TableName": table_name,
            "ScanIndexForward": not self.newest_first,
            **({"IndexName": self.index} if self.index else {"ConsistentRead": True}),
            **request_fields(self._terms()),
        }

    def own(self, items: list[Item]) -> list[Item]:
        """Return the items that belong to the namespace of the partition. IAM vouches for the keys
        of the table alone: an item of another tenant may name this namespace in its index keys."""
        if not self.index:
            return items
        owner = _owner(self.partition)
        return [item for item in items if _owner(item["PK"]["S"]) == owner]

    def _terms(self) -> Iterator[Term]:
        sort_key = Field(f"{self.index}SK")
        yield Field(f"{self.index}PK").key_equals(self.partition)
        if self.prefix:
            yield sort_key.key_begins_with(self.prefix)
        elif self.low or self.high:
            yield sort_key.key_between(self.low, self.high)
        yield from (Field(attribute).show() for attribute in self.attributes)


def _owner(key: str) -> str:
    """Return the namespace that a key begins with; none for keys from before there were any."""
    first = key.partition("/")[0]
    return "" if "#" in first else first


async def read_page(
    table: Table, query: Query, start: Item | None = None, limit: int = PAGE_ITEMS
) -> tuple[list[Item], Item | None]:
    """Return a page, and the start of the next; None when this page was the last."""
    request = {**query.request(table.name), "Limit": min(limit, PAGE_ITEMS)}
    if start is not None:
        request["ExclusiveStartKey"] = start
    answer = await table.repeatable("Query", request)
    return query.own(answer["Items"]), answer.get("LastEvaluatedKey")


async def read_pages(table: Table, query: Query, limit: int | None = None) -> list[Item]:
    """Return the items of all pages; with a limit, at most so many."""
    found: list[Item] = []
    start: Item | None = None
    while True:
        left = PAGE_ITEMS if limit is None else limit - len(found)
        items, start = await read_page(table, query, start, left)
        found += items
        if start is None or len(found) == limit:
            return found
