"""A manifest as properties of `Custom::ZaeLimiterLimits`, in the words of CloudFormation.

    Namespace: default
    System: {OnUnavailable: block, Limits: {rpm: {Capacity: 60}}}
    Resources: {gpt-4: {Limits: {rpm: {Capacity: 500, RefillAmount: 500, RefillPeriod: 60}}}}
    Entities: {acme: {Name: Acme, Metadata: '{"tier": "gold"}', Limits: {rpm: 1000/min}}}

CloudFormation hands every number and truth value over as a text, so that both are read from texts.
For the same reason, metadata is JSON in a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .manifest import Manifest, manifest_to_dict

Convert = Callable[[Any], Any]
# Properties that are not part of the manifest.
_OTHERS = {"ServiceToken", "ServiceTimeout", "TableName", "NamespaceId", "Force"}


def properties_to_document(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest that the properties declare, for `read_manifest`. Parts that have another
    form than they should are kept as they are, for the reader to refuse."""
    own = {name: value for name, value in properties.items() if name not in _OTHERS}
    found: dict[str, Any] = _read_top(own)
    return found


def manifest_to_properties(manifest: Manifest) -> dict[str, Any]:
    """Return the properties from which `properties_to_document` makes this manifest."""
    written: dict[str, Any] = _write_top(manifest_to_dict(manifest))
    return written


def _fields(names: Mapping[str, tuple[str, Convert]]) -> Convert:
    """Return a function that renames and converts the members of a map. Others, and members that
    are there in both spellings, keep their name, to be told of as unknown."""

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        found: dict[str, Any] = {}
        for key, held in value.items():
            name, read = names.get(key, (key, _same))
            found[key if name in value and name != key else name] = read(held)
        return found

    return convert


def _each(convert: Convert) -> Convert:
    """Return a function that converts the values of a map whose keys are names."""

    def convert_each(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: convert(held) for key, held in value.items()}

    return convert_each


def _same(value: Any) -> Any:
    return value


def _number(value: Any) -> Any:
    is_digits = isinstance(value, str) and value.isascii() and value.isdigit()
    return int(value) if is_digits and len(value) < 100 else value


def _flag(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _metadata(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _limit(value: Any) -> Any:
    return _read_limit(value) if isinstance(value, Mapping) else _number(value)


_read_limit = _fields(
    {
        "Capacity": ("capacity", _number),
        "RefillAmount": ("refill_amount", _number),
        "RefillPeriod": ("refill_period", _number),
        "Burst": ("burst", _number),
    }
)
_LEVEL = {"Limits": ("limits", _each(_limit)), "Inherit": ("inherit", _flag)}
_RESOURCES = {"Resources": ("resources", _each(_fields(_LEVEL)))}
_read_top = _fields(
    {
        "Namespace": ("namespace", _same),
        "System": ("system", _fields({**_LEVEL, "OnUnavailable": ("on_unavailable", _same)})),
        **_RESOURCES,
        "Entities": (
            "entities",
            _each(
                _fields(
                    {
                        "Name": ("name", _same),
                        "Parent": ("parent", _same),
                        "Cascade": ("cascade", _flag),
                        "Metadata": ("metadata", _metadata),
                        **_LEVEL,
                        **_RESOURCES,
                    }
                )
            ),
        ),
    }
)

_LEVEL_WORDS = {"limits": ("Limits", _same), "inherit": ("Inherit", _same)}
_RESOURCE_WORDS = {"resources": ("Resources", _each(_fields(_LEVEL_WORDS)))}
_write_top = _fields(
    {
        "namespace": ("Namespace", _same),
        "system": (
            "System",
            _fields({**_LEVEL_WORDS, "on_unavailable": ("OnUnavailable", _same)}),
        ),
        **_RESOURCE_WORDS,
        "entities": (
            "Entities",
            _each(
                _fields(
                    {
                        "name": ("Name", _same),
                        "parent": ("Parent", _same),
                        "cascade": ("Cascade", _same),
                        "metadata": ("Metadata", lambda held: json.dumps(held, sort_keys=True)),
                        **_LEVEL_WORDS,
                        **_RESOURCE_WORDS,
                    }
                )
            ),
        ),
    }
)
