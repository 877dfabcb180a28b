"""A manifest: the limits and entities of one namespace, as a file declares them.

    namespace: default
    system:
      on_unavailable: block
      limits: {rpm: 60}
    resources:
      gpt-4:
        limits: {rpm: 500/min, tpm: 40000/min}
    entities:
      acme: {name: Acme Inc.}
      key-1:
        parent: acme
        cascade: true
        limits: {rpm: 100/min; burst 150}
        inherit: true
        resources:
          gpt-4:
            limits: {rpm: {capacity: 50, refill_amount: 10, refill_period: 60}}

`manifest_reader` reads it, `manifest_plan` compares it with a store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .hierarchy import SYSTEM_SLOT, ConfigSlot
from .limit import Limit
from .limit_syntax import format_limit
from .models import LimiterConfig
from .validation import DEFAULT_RESOURCE


@dataclass(frozen=True, slots=True)
class DeclaredEntity:
    """A declared entity. None means: not declared, so that the stored value stays."""

    id: str
    name: str | None = None
    parent_id: str | None = None
    cascade: bool | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest: configurations by slot, and entities by id."""

    namespace: str
    configs: Mapping[ConfigSlot, LimiterConfig] = field(default_factory=dict)
    entities: Mapping[str, DeclaredEntity] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The hash of what is declared, whatever its order and form."""
        text = json.dumps(manifest_to_dict(self), sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def manifest_to_dict(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest as JSON values, from which `read_manifest` makes an equal one."""
    said: dict[str, Any] = {"namespace": manifest.namespace}
    resources: dict[str, Any] = {}
    entities = {key: _entity_fields(entity) for key, entity in sorted(manifest.entities.items())}
    for slot, config in sorted(manifest.configs.items(), key=_slot_order):
        if slot == SYSTEM_SLOT:
            said["system"] = _config_fields(config)
        elif slot.entity_id is None:
            resources[str(slot.resource)] = _config_fields(config)
        else:
            held = entities.setdefault(slot.entity_id, {})
            if slot.resource == DEFAULT_RESOURCE:
                held |= _config_fields(config)
            else:
                held.setdefault("resources", {})[str(slot.resource)] = _config_fields(config)
    said["resources"], said["entities"] = resources, dict(sorted(entities.items()))
    return {key: value for key, value in said.items() if value != {}}


def _slot_order(item: tuple[ConfigSlot, LimiterConfig]) -> tuple[str, str]:
    return item[0].entity_id or "", item[0].resource or ""


def _entity_fields(entity: DeclaredEntity) -> dict[str, Any]:
    said = {
        "name": entity.name,
        "parent": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": None if entity.metadata is None else dict(entity.metadata),
    }
    return {key: value for key, value in said.items() if value is not None}


def _config_fields(config: LimiterConfig) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if config.on_unavailable is not None:
        said["on_unavailable"] = config.on_unavailable
    if config.limits is not None:
        said["limits"] = {limit.name: limit_shorthand(limit) for limit in config.limits}
    if config.inherit:
        said["inherit"] = True
    return said


def limit_shorthand(limit: Limit) -> str:
    """Return the rate of a limit as a manifest writes it: `100/min` or `100/min; burst 150`."""
    rate, _, burst = format_limit(limit).removeprefix(f"{limit.name}: ").partition(" (burst: ")
    text = f"{rate}; burst {burst.rstrip(')')}" if burst else rate
    return text.replace(",", "")
