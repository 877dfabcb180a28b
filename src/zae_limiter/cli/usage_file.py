"""This module reads usage that `zae-limiter usage list` wrote with `--json` or `--csv`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..core.exceptions import ValidationError
from ..core.models import UsageSnapshot
from ..core.validation import (
    validate_amount,
    validate_identifier,
    validate_limit_name,
    validate_resource,
)
from ..core.windows import WINDOW_TYPES, iso, parse_iso

_FIELDS = frozenset(field.name for field in fields(UsageSnapshot))
_Key = tuple[str, str, str, str]


def read_usage_files(paths: Iterable[str]) -> list[UsageSnapshot]:
    """Return the snapshots in these files, in which each window may be there only once."""
    found: dict[_Key, UsageSnapshot] = {}
    for path in paths:
        for number, row in enumerate(_rows(path), 1):
            where = f"{path}[{number}]"
            snapshot = _checked(row, where)
            key = _window_key(snapshot)
            if key in found:
                raise ValidationError(where, " ".join(key), f"is there twice: {' '.join(key)}")
            found[key] = snapshot
    return list(found.values())


def _window_key(snapshot: UsageSnapshot) -> _Key:
    whose = (snapshot.entity_id, snapshot.resource, snapshot.window_type)
    return *whose, iso(parse_iso(snapshot.window_start))


def _rows(path: str) -> Iterable[Any]:
    try:
        text = Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValidationError(path, path, "is not UTF-8 text") from error
    is_json = text.lstrip().startswith(("[", "{"))
    return _from_json(text, path) if is_json else _from_csv(text, path)


def _from_json(text: str, path: str) -> Iterable[Any]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError(path, text[:50], f"is not JSON: {error}") from error
    if not isinstance(rows, list):
        raise ValidationError(path, text[:50], "is not a list, as `usage list --json` prints it")
    return rows


def _from_csv(text: str, path: str) -> Iterator[dict[str, Any]]:
    """Yield the windows of a CSV file, which has a row for each limit of a window."""
    windows: dict[tuple[str | None, ...], dict[str, Any]] = {}
    named = _FIELDS - {"counters"}
    for number, row in enumerate(_csv_rows(text, path), 2):
        if missing := ({*named, "limit", "amount"} - {k for k, v in row.items() if v is not None}):
            what = f"has no column {sorted(missing)[0]}, as `usage list --csv` prints it"
            raise ValidationError(f"{path}:{number}", "", what)
        whose = tuple(row[name] for name in sorted(named))
        found = windows.setdefault(whose, {**{name: row[name] for name in named}, "counters": {}})
        found["total_events"] = _number(row["total_events"], f"{path}:{number}")
        found["counters"][row["limit"]] = _number(row["amount"], f"{path}:{number}")
    yield from windows.values()


def _csv_rows(text: str, path: str) -> Iterator[dict[str, Any]]:
    try:
        yield from csv.DictReader(text.splitlines())
    except csv.Error as error:
        raise ValidationError(path, text[:50], f"is not CSV: {error}") from error


def _number(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValidationError(where, text[:50], "must be a whole number") from error


def _checked(row: Any, where: str) -> UsageSnapshot:
    if not isinstance(row, Mapping) or row.keys() < _FIELDS:
        raise ValidationError(where, str(row)[:50], f"must have {', '.join(sorted(_FIELDS))}")
    if row["window_type"] not in WINDOW_TYPES:
        known = ", ".join(WINDOW_TYPES)
        raise ValidationError(f"{where}.window_type", row["window_type"], f"must be one of {known}")
    snapshot = UsageSnapshot(**{name: row[name] for name in _FIELDS})
    validate_identifier(snapshot.entity_id, f"{where}.entity_id")
    validate_resource(snapshot.resource, f"{where}.resource")
    _check_times(snapshot, where)
    validate_amount(f"{where}.total_events", snapshot.total_events, signed=True)
    if not isinstance(snapshot.counters, Mapping):
        raise ValidationError(f"{where}.counters", snapshot.counters, "must be a map")
    for name, amount in snapshot.counters.items():
        validate_limit_name(name, f"{where}.counters")
        validate_amount(f"{where}.counters.{name}", amount, signed=True)
    return snapshot


def _check_times(snapshot: UsageSnapshot, where: str) -> None:
    try:
        is_ordered = parse_iso(snapshot.window_start) <= parse_iso(snapshot.window_end)
    except (TypeError, ValueError) as error:
        times = f"{snapshot.window_start} to {snapshot.window_end}"
        raise ValidationError(f"{where}.window_start", times, "must be ISO 8601") from error
    if not is_ordered:
        raise ValidationError(f"{where}.window_end", snapshot.window_end, "comes before its start")
