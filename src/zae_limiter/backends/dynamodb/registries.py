"""Which resources have limits, at the level of resources and at that of entities."""

from __future__ import annotations

from collections.abc import Mapping

from .expressions import Expression
from .fields import Fields, read
from .schema import (
    key,
    name_attr,
    parse_name_attr,
    pk_system,
    sk_entity_config_resources,
    sk_resources,
)
from .table import Action, Table


class Registries:
    """Two records of each namespace, changed in the transactions of what they tell of."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def counting(self, namespace_id: str, changes: Mapping[str, int]) -> list[Action]:
        """Count entities with limits of their own up or down, by resource."""
        if not any(changes.values()):
            return []
        update = _found_in(namespace_id)
        for resource, change in changes.items():
            update.add(name_attr(resource), change)
        record = key(pk_system(namespace_id), sk_entity_config_resources())
        return [self._table.updating(record, update)]

    def listing(self, namespace_id: str, resource: str, *, is_there: bool) -> Action:
        """List a resource as one with defaults, or no longer."""
        update = _found_in(namespace_id)
        if is_there:
            update.include("resources", resource)
        else:
            update.exclude("resources", resource)
        return self._table.updating(key(pk_system(namespace_id), sk_resources()), update)

    async def of_entities(self, namespace_id: str) -> list[str]:
        """Resources for which some entity has limits of its own."""
        record = key(pk_system(namespace_id), sk_entity_config_resources())
        item = await self._table.get(record, consistent=True)
        return [] if item is None else read(item, _counted)

    async def of_resources(self, namespace_id: str) -> list[str]:
        """Resources that have defaults."""
        record = key(pk_system(namespace_id), sk_resources())
        item = await self._table.get(record, consistent=True)
        return [] if item is None else sorted(Fields(item).value("resources") or ())


def _found_in(namespace_id: str) -> Expression:
    """An update of a record that a purge of the namespace must find."""
    e = Expression()
    e.set("GSI4PK", e.value(namespace_id))
    e.set("GSI4SK", e.value(pk_system(namespace_id)))
    return e


def _counted(fields: Fields) -> list[str]:
    found = set()
    for attribute, value in fields.item.items():
        name = parse_name_attr(attribute)
        if name is not None and "N" in value and fields.integer(attribute) > 0:
            found.add(name)
    return sorted(found)
