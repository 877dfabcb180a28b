"""Located values: parsed text that remembers the line and column of each of its parts, and the
problems found in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .text import printable


class TextPlace(NamedTuple):
    """A place in a text. Lines and columns count from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Located:
    """A located value is a scalar, a list or a map, and the place where it is written. A value that
    was not read from a text has no place."""

    value: LocatedContent
    place: TextPlace | None = None


LocatedPairs = tuple[tuple[Located, Located], ...]


@dataclass(frozen=True, slots=True)
class LocatedMap:
    """A map in the order in which it is written. A key may be written twice."""

    pairs: LocatedPairs


LocatedContent = None | bool | int | float | str | list[Located] | LocatedMap


def locate_plain(value: Any) -> Located:
    """Return a JSON value without places."""
    if isinstance(value, Mapping):
        pairs = ((Located(str(key)), locate_plain(held)) for key, held in value.items())
        return Located(LocatedMap(tuple(pairs)))
    if isinstance(value, list | tuple):
        return Located([locate_plain(held) for held in value])
    if value is None or isinstance(value, bool | int | float | str):
        return Located(value)
    return Located(str(value))


def plain_value(located: Located) -> Any:
    """Return the value without places."""
    if isinstance(located.value, LocatedMap):
        return {str(key.value): plain_value(held) for key, held in located.value.pairs}
    if isinstance(located.value, list):
        return [plain_value(held) for held in located.value]
    return located.value


class ManifestProblem(NamedTuple):
    """A problem of a manifest: the part that has it, and its line and column if it has a place."""

    path: str
    message: str
    line: int | None = None
    column: int | None = None

    def in_file(self, source: str) -> str:
        """Return the problem with the name of its file and its place."""
        place = "" if self.line is None else f":{self.line}:{self.column}"
        subject = f"{self.path}: " if self.path else ""
        return printable(f"{source}{place}: {subject}{self.message}")
