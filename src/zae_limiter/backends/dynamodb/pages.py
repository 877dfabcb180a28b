"""Queries, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .expressions import Expression
from .table import Table
from .wire.values import Item

PAGE_ITEMS = 1000


@dataclass(frozen=True, slots=True)
class Query:
    """Items of one partition in the order of their sort keys.

    Keys from `low` to `high`, both inclusive, or all that start with `prefix`. `index`
    names a global index, whose answers may be a moment old; `attributes` are all that is
    wanted, if given.
    """

    partition: str
    prefix: str = ""
    low: str = ""
    high: str = ""
    index: str = ""
    newest_first: bool = False
    attributes: tuple[str, ...] = ()

    def request(self, table_name: str) -> dict[str, Any]:
        """What `Query` takes."""
        expression = Expression()
        fields: dict[str, Any] = {
            "TableName": table_name,
            "KeyConditionExpression": " AND ".join(self._conditions(expression)),
            "ScanIndexForward": not self.newest_first,
            **({"IndexName": self.index} if self.index else {"ConsistentRead": True}),
        }
        if self.attributes:
            fields["ProjectionExpression"] = ", ".join(map(expression.name, self.attributes))
        return {**fields, **expression.condition_request()}

    def _conditions(self, e: Expression) -> list[str]:
        sort_key = f"{self.index}SK"
        conditions = [f"{e.name(f'{self.index}PK')} = {e.value(self.partition)}"]
        if self.prefix:
            conditions.append(f"begins_with({e.name(sort_key)}, {e.value(self.prefix)})")
        elif self.low or self.high:
            low, high = e.value(self.low), e.value(self.high)
            conditions.append(f"{e.name(sort_key)} BETWEEN {low} AND {high}")
        return conditions


async def read_page(
    table: Table, query: Query, start: Item | None = None, limit: int = PAGE_ITEMS
) -> tuple[list[Item], Item | None]:
    """One page, and where the next one starts; None when this was the last."""
    request = {**query.request(table.name), "Limit": min(limit, PAGE_ITEMS)}
    if start is not None:
        request["ExclusiveStartKey"] = start
    answer = await table.repeatable("Query", request)
    return answer["Items"], answer.get("LastEvaluatedKey")


async def read_pages(table: Table, query: Query, limit: int | None = None) -> list[Item]:
    """All pages; with a limit, at most so many items."""
    found: list[Item] = []
    start: Item | None = None
    while True:
        left = PAGE_ITEMS if limit is None else limit - len(found)
        items, start = await read_page(table, query, start, left)
        found += items
        if start is None or len(found) == limit:
            return found
