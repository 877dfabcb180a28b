"""The marks of configuration records that a manifest manages, in the partition of the system.

A mark is a small record of its own: it changes in one transaction with the configuration record
that it is about, and all marks of a namespace are found by one query.
"""

from __future__ import annotations

from ...core.hierarchy import ConfigSlot
from ..damage import readable
from .codec import indexed
from .item_reader import ItemReader, decode_record
from .pages import Query, read_pages
from .schema import key, pk_system, sk_managed
from .table import Action, Table
from .wire.values import Item, to_item

_PREFIX = sk_managed().removesuffix("#")


class Marks:
    """The marks of all namespaces of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def marking(self, namespace_id: str, slot: ConfigSlot, mark: str | None) -> Action:
        """Return the action that sets or removes a mark."""
        pk, sk = pk_system(namespace_id), sk_managed(*slot)
        if mark is None:
            return self._table.deleting(key(pk, sk))
        return self._table.putting(to_item({**indexed(namespace_id, pk, sk), "mark": mark}))

    async def set(self, namespace_id: str, slot: ConfigSlot, mark: str | None) -> None:
        """Set a mark, or remove it."""
        await self._table.transact([self.marking(namespace_id, slot, mark)])

    async def of(self, namespace_id: str) -> dict[ConfigSlot, str]:
        """Return all marks of a namespace."""
        items = await read_pages(self._table, Query(pk_system(namespace_id), _PREFIX))
        return dict(readable(_decode_mark, items))


def _decode_mark(item: Item) -> tuple[ConfigSlot, str]:
    return decode_record(item, _mark)


def _mark(fields: ItemReader) -> tuple[ConfigSlot, str]:
    entity_id, resource = fields.text("SK").removeprefix(_PREFIX).split("#")
    return ConfigSlot(entity_id or None, resource or None), fields.text("mark")
