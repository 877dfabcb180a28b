"""Lambda's event patterns, evaluated: lists of values, prefixes, and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def matches(pattern: Mapping[str, Any], event: Any) -> bool:
    """Whether an event has every field of the pattern, with one of the values for it."""
    if not isinstance(event, Mapping):
        return False
    return all(_matches_field(wanted, event.get(name)) for name, wanted in pattern.items())


def _matches_field(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        return matches(wanted, found)
    assert isinstance(wanted, Sequence), wanted
    return any(_matches_value(each, found) for each in wanted)


def _matches_value(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        ((rule, text),) = wanted.items()
        assert rule == "prefix", f"{rule} is not known here"
        return isinstance(found, str) and found.startswith(text)
    return bool(wanted == found)
