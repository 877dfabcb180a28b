"""A dialect is how one API of a provider tells what was said, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .usage import TokenUsage


class Heard(NamedTuple):
    """The content of one answer, or of one event of a stream.

    `usage`: the totals so far. `is_final`: they are the provider's last word. `is_ours`: the event
    came only because the limiter asked for it, so the caller does not see it.
    """

    text: str = ""
    usage: TokenUsage | None = None
    is_final: bool = False
    is_ours: bool = False


class Dialect(Protocol):
    """A reader of answers. It holds nothing, so that any number of calls may share it."""

    def asked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with what the reader needs added."""
        ...

    def whole(self, answer: Any) -> Heard:
        """Read an answer that came in one piece."""
        ...

    def event(self, event: Any, arguments: Mapping[str, Any]) -> Heard:
        """Read one event of a stream that a caller asked for with these arguments."""
        ...


def wants_stream(arguments: Mapping[str, Any]) -> bool:
    """Tell whether a call asks for a stream. SDKs take any true value; theirs for none is false."""
    return bool(arguments.get("stream"))


def number_at(value: Any, *path: str) -> int:
    """Return the number that a path of attributes leads to; 0 where there is none."""
    found = value_at(value, *path)
    return found if isinstance(found, int) and found > 0 else 0


def text_at(value: Any, *path: str) -> str:
    """Return the text that a path of attributes leads to; none where there is none."""
    found = value_at(value, *path)
    return found if isinstance(found, str) else ""


def value_at(value: Any, *path: str) -> Any:
    """Return what a path of attributes, or of keys, leads to; None where one is missing."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value
