"""Registries list the resources that have limits, as defaults or for entities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .expressions import Field, Term
from .item_reader import ItemReader, decode_record
from .schema import (
    key,
    name_attr,
    parse_name_attr,
    pk_system,
    sk_entity_config_resources,
    sk_resources,
)
from .table import Action, Table

_RESOURCES = Field("resources")


class Registries:
    """The two registries of a namespace change in the transactions of the limits they list."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def counting(self, namespace_id: str, changes: Mapping[str, int]) -> list[Action]:
        """Return the actions that count entities with limits of their own, by resource."""
        if not any(changes.values()):
            return []
        counts = [Field(name_attr(name)).add(change) for name, change in changes.items() if change]
        record = key(pk_system(namespace_id), sk_entity_config_resources())
        return [self._table.updating(record, [*_found_in(namespace_id), *counts])]

    def listing(self, namespace_id: str, resource: str, *, is_there: bool) -> Action:
        """Return the action that lists a resource with defaults, or takes it off the list."""
        listed = _RESOURCES.include(resource) if is_there else _RESOURCES.exclude(resource)
        record = key(pk_system(namespace_id), sk_resources())
        return self._table.updating(record, [*_found_in(namespace_id), listed])

    async def of_entities(self, namespace_id: str) -> list[str]:
        """Return the resources for which some entity has limits of its own."""
        record = key(pk_system(namespace_id), sk_entity_config_resources())
        item = await self._table.get(record, consistent=True)
        return [] if item is None else decode_record(item, _counted)

    async def of_resources(self, namespace_id: str) -> list[str]:
        """Return the resources that have defaults."""
        record = key(pk_system(namespace_id), sk_resources())
        item = await self._table.get(record, consistent=True)
        return [] if item is None else sorted(ItemReader(item).value(_RESOURCES) or ())


def _found_in(namespace_id: str) -> Iterator[Term]:
    """Yield the terms by which a purge of the namespace finds the record."""
    yield Field("GSI4PK").set(namespace_id)
    yield Field("GSI4SK").set(pk_system(namespace_id))


def _counted(fields: ItemReader) -> list[str]:
    found = set()
    for attribute, value in fields.item.items():
        name = parse_name_attr(attribute)
        if name is not None and "N" in value and fields.number(attribute) > 0:
            found.add(name)
    return sorted(found)
