"""This module reads manifests from YAML and writes them as YAML.

Every part keeps its line and column. Anchors, aliases and merge keys (`<<`) are resolved; texts
that YAML 1.1 takes for odd numbers (`1:30`, `0x10`, `017`) are refused where a number is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .core.exceptions import ManifestError
from .core.located import Located, LocatedContent, LocatedMap, ManifestProblem, TextPlace
from .core.manifest import Manifest, manifest_to_dict
from .core.manifest_reader import read_manifest

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_DECIMAL = re.compile(r"[+-]?(?:0|[1-9][0-9_]*)")
_MAX_BYTES = 32_000_000
# Aliases may repeat a part any number of times, and nest.
_MAX_PARTS = 1_000_000
_MAX_DEPTH = 32
_TOO_LARGE = "holds too many parts, or nests too deep"


def load_manifest(path: str | Path) -> Manifest:
    """Read a manifest file, or raise `ManifestError` with all of its problems."""
    with Path(path).open("rb") as file:
        return read_manifest_bytes(file, str(path))


def read_manifest_bytes(file: BinaryIO, source: str) -> Manifest:
    """Read a manifest from an open file, or raise `ManifestError` with all of its problems."""
    content = file.read(_MAX_BYTES + 1)
    try:
        if len(content) > _MAX_BYTES:
            raise _file_error(source, f"is larger than {_MAX_BYTES // 1_000_000} MB")
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _file_error(source, f"is not UTF-8 text: byte {error.start}") from error
    return parse_manifest(text, source)


def _file_error(source: str, message: str) -> ManifestError:
    return ManifestError(source, [ManifestProblem("", message)])


def parse_manifest(text: str, source: str = "manifest") -> Manifest:
    """Read a manifest, or raise `ManifestError` with all of its problems. `source`: the name of the
    file, for messages."""
    return read_manifest(_Composer(source).read(text), source)


def dump_manifest(manifest: Manifest) -> str:
    """Return the manifest as YAML, from which `parse_manifest` reads an equal one."""
    import yaml

    text: str = yaml.dump(
        manifest_to_dict(manifest),
        Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )
    return text


class _Composer:
    """A composer makes located values of the nodes of YAML."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._parts = 0

    def read(self, text: str) -> Located:
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            for depth, mark in _depths(yaml, yaml.parse(text, Loader=loader)):
                self._count(depth, _place(mark))
            self._parts = 0
            node = yaml.compose(text, Loader=loader)
        except yaml.MarkedYAMLError as error:
            place = _place(error.problem_mark or error.context_mark)
            raise self._error(str(error.problem or error.context), place) from error
        except yaml.YAMLError as error:
            raise self._error(str(error).splitlines()[0], None) from error
        if node is None:
            raise self._error("is empty", None)
        return self._located(node, 0)

    def _located(self, node: Any, depth: int) -> Located:
        place = _place(node.start_mark)
        self._count(depth, place)
        return Located(self._content(node, depth, place), place)

    def _count(self, depth: int, place: TextPlace | None) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS or depth > _MAX_DEPTH:
            raise self._error(_TOO_LARGE, place)

    def _content(self, node: Any, depth: int, place: TextPlace | None) -> LocatedContent:
        if node.id == "mapping":
            return LocatedMap(tuple(self._pairs(node, depth)))
        if node.id == "sequence":
            return [self._located(member, depth + 1) for member in node.value]
        return self._scalar(node, place)

    def _pairs(self, node: Any, depth: int) -> Iterator[tuple[Located, Located]]:
        """Yield the pairs of a map, then those that a merge key adds."""
        merged: list[Any] = []
        own = set()
        for key, held in node.value:
            if key.tag == _MERGE:
                merged += held.value if held.id == "sequence" else [held]
                continue
            place = _place(key.start_mark)
            if key.id != "scalar":
                raise self._error("a key must be a plain text", place)
            own.add(key.value)
            yield Located(key.value, place), self._located(held, depth + 1)
        for other in merged:
            place = _place(other.start_mark)
            if other.id != "mapping":
                raise self._error("<< must name a map", place)
            # Without this, maps that only merge empty maps could multiply for ever.
            self._count(depth, place)
            for key, held in self._pairs(other, depth + 1):
                if key.value not in own:
                    own.add(str(key.value))
                    yield key, held

    def _scalar(self, node: Any, place: TextPlace | None) -> LocatedContent:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind == "null":
            return None
        if kind == "bool":
            return str(text).lower() in ("yes", "true", "on")
        if kind == "int":
            # A number with thousands of digits takes Python seconds to read.
            if not _DECIMAL.fullmatch(text) or len(text) > 100:
                raise self._error(f"{text[:50]} is not a plain decimal number: quote it", place)
            return int(text.replace("_", ""))
        if kind == "float":
            try:
                return float(text.replace("_", ""))
            except ValueError:
                raise self._error(f"{text[:50]} is not a plain number: quote it", place) from None
        if kind in ("str", "timestamp"):
            return str(text)
        raise self._error(f"the tag {node.tag} is not supported", place)

    def _error(self, message: str, place: TextPlace | None) -> ManifestError:
        line, column = place or (None, None)
        return ManifestError(self._source, [ManifestProblem("", message, line, column)])


def _place(mark: Any) -> TextPlace | None:
    return None if mark is None else TextPlace(mark.line + 1, mark.column + 1)


def _depths(yaml: Any, events: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Yield how deep each part of a text is nested, and its mark. A text is checked by this before
    it is composed: PyYAML composes by recursion, and brackets alone would crash the process."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.NodeEvent):
            yield depth, event.start_mark
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
