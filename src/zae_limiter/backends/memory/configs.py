"""Configuration in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from ...core.audit import AuditEvent
from ...core.hierarchy import ConfigSlot
from ...core.models import LimiterConfig
from ...ports.repository_protocol import ConfigPage, Declaration
from .entities import copy_entity
from .tables import Tables

_NOTHING = LimiterConfig()


class MemoryConfigs:
    """Configuration records by slot. A deleted record stays, empty, and keeps its version."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def read(
        self, namespace_id: str, slots: Sequence[ConfigSlot], entity_id: str | None = None
    ) -> ConfigPage:
        tables = self._tables
        known = {}
        with tables.lock:
            for slot in slots:
                config = tables.configs.get((namespace_id, slot))
                if _says(config):
                    known[slot] = config
            entity = None if entity_id is None else tables.entities.get((namespace_id, entity_id))
        return ConfigPage(known, None if entity is None else copy_entity(entity))

    async def entities_with_records(self, namespace_id: str, at_most: int) -> None:
        return None

    async def write(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        change: LimiterConfig,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> int | None:
        tables = self._tables
        with tables.lock:
            stored = tables.configs.get((namespace_id, slot)) or LimiterConfig(config_version=0)
            if not self._declare(namespace_id, slot, stored, declaration):
                return None
            version = (stored.config_version or 0) + 1
            said = {
                name: value
                for name in ("on_unavailable", "auto_update", "strict_version")
                if (value := getattr(change, name)) is not None
            }
            if change.limits is not None:
                said |= {"limits": change.limits or None, "inherit": change.inherit}
            tables.configs[namespace_id, slot] = replace(stored, config_version=version, **said)
            tables.record(namespace_id, event)
        return version

    async def delete(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        event: AuditEvent,
        declaration: Declaration | None = None,
    ) -> bool:
        tables = self._tables
        with tables.lock:
            stored = tables.configs.get((namespace_id, slot))
            if not _says(stored) or not self._declare(namespace_id, slot, stored, declaration):
                return False
            tables.configs[namespace_id, slot] = LimiterConfig(config_version=stored.config_version)
            tables.record(namespace_id, event)
        return True

    async def marks(self, namespace_id: str) -> dict[ConfigSlot, str]:
        with self._tables.lock:
            stored = list(self._tables.marks.items())
        return {slot: mark for (owner, slot), mark in stored if owner == namespace_id}

    async def mark(self, namespace_id: str, slot: ConfigSlot, mark: str | None) -> None:
        with self._tables.lock:
            self._set_mark(namespace_id, slot, mark)

    def _declare(
        self,
        namespace_id: str,
        slot: ConfigSlot,
        stored: LimiterConfig,
        declaration: Declaration | None,
    ) -> bool:
        """Set the mark of a declaration, if the record is as it was seen."""
        if declaration is None:
            return True
        is_current = declaration.is_current(stored if _says(stored) else None)
        if is_current:
            self._set_mark(namespace_id, slot, declaration.mark)
        return is_current

    def _set_mark(self, namespace_id: str, slot: ConfigSlot, mark: str | None) -> None:
        if mark is None:
            self._tables.marks.pop((namespace_id, slot), None)
        else:
            self._tables.marks[namespace_id, slot] = mark

    async def entities_with_limits(
        self, namespace_id: str, resource: str, limit: int | None, cursor: str | None
    ) -> tuple[list[str], str | None]:
        ids = sorted(
            slot.entity_id
            for slot in self._slots(namespace_id)
            if slot.entity_id is not None and slot.resource == resource
        )
        later = [entity_id for entity_id in ids if cursor is None or entity_id > cursor]
        page = later if limit is None else later[:limit]
        return page, page[-1] if len(page) < len(later) else None

    async def resources_with_entity_limits(self, namespace_id: str) -> list[str]:
        found = {s.resource for s in self._slots(namespace_id) if s.entity_id and s.resource}
        return sorted(found)

    async def resources_with_defaults(self, namespace_id: str) -> list[str]:
        slots = self._slots(namespace_id)
        return sorted(s.resource for s in slots if s.resource and s.entity_id is None)

    def _slots(self, namespace_id: str) -> list[ConfigSlot]:
        with self._tables.lock:
            stored = self._tables.configs.items()
            return [slot for (ns, slot), c in stored if ns == namespace_id and c.limits]


def _says(config: LimiterConfig | None) -> TypeGuard[LimiterConfig]:
    """Return whether the record sets anything."""
    return config is not None and config != _NOTHING
