"""The version record names the versions of a deployment's parts."""

from __future__ import annotations

from contextlib import suppress

from ...core.versions import CURRENT_SCHEMA_VERSION as TABLE_VERSION
from ...core.versions import UNKNOWN_SCHEMA_VERSION
from ...core.windows import iso_ms
from ...ports.deployment import VersionRecord
from .codec import indexed
from .expressions import IS_NEW
from .item_reader import ItemReader, decode_record
from .schema import REGISTRY_ID, key, pk_system, sk_version
from .table import Table
from .wire.errors import ConditionFailed
from .wire.values import Item, to_item

__all__ = ["TABLE_VERSION", "VERSION_KEY", "DynamoVersions"]

# Tables before namespaces kept their record here, with its fields in one map at first.
_OLD_VERSION_KEY = key("SYSTEM#", sk_version())
VERSION_KEY = key(pk_system(REGISTRY_ID), sk_version())


class DynamoVersions:
    """The version record of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def read(self) -> VersionRecord | None:
        """Return the record, from where older clients keep it if it is not in today's place; None
        when there is none."""
        item = await self._table.get(VERSION_KEY, consistent=True)
        if item is None:
            old = await self._table.get(_OLD_VERSION_KEY, consistent=True)
            item = None if old is None else _at_old_place(old)
        return None if item is None else decode_record(item, _version)

    async def write(self, record: VersionRecord) -> None:
        """Replace the record, with the current time."""
        await self._table.put(self._item(record))

    async def introduce(self, record: VersionRecord) -> None:
        """Write the record if there is none."""
        with suppress(ConditionFailed):
            await self._table.put(self._item(record), IS_NEW)

    def _item(self, record: VersionRecord) -> Item:
        return to_item(
            {
                **indexed(REGISTRY_ID, pk_system(REGISTRY_ID), sk_version()),
                "schema_version": record.schema_version,
                "lambda_version": record.lambda_version,
                "client_min_version": record.client_min_version,
                "updated_at": iso_ms(self._table.io.now_ms()),
                "updated_by": record.updated_by,
            }
        )


def _at_old_place(old: Item) -> Item:
    """Return the record of a table without namespaces. The first clients called their schema 1.0,
    and later ones began again below it."""
    item = {**old, **old.get("data", {}).get("M", {})}
    if item.get("schema_version", {}).get("S", "").startswith("1."):
        item["schema_version"] = {"S": UNKNOWN_SCHEMA_VERSION}
    return item


def _version(fields: ItemReader) -> VersionRecord:
    return VersionRecord(
        fields.text("schema_version"),
        fields.maybe_text("lambda_version"),
        fields.maybe_text("client_min_version") or "0.0.0",
        fields.maybe_text("updated_at"),
        fields.maybe_text("updated_by"),
    )
