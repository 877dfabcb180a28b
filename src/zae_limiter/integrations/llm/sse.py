"""Server-sent events, read from the bytes of a stream that is passed on as it came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MAX_LINE = 1 << 22


class SseReader:
    """A reader that returns the JSON objects of `data:` lines. Chunks may end anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes | str) -> list[Mapping[str, Any]]:
        """Return the events that are complete with this chunk."""
        more = chunk.encode() if isinstance(chunk, str) else chunk
        *lines, self._rest = (self._rest + more).split(b"\n")
        # Without this, a provider that never ends a line would fill the memory.
        if len(self._rest) > _MAX_LINE:
            self._rest = b""
        return [event for event in map(_event, lines) if event is not None]


def _event(line: bytes) -> Mapping[str, Any] | None:
    if not line.startswith(b"data:"):
        return None
    try:
        found = json.loads(line.removeprefix(b"data:"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
