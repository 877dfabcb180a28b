"""Writes docs/reference.md from signatures and docstrings: `python -m tests.docs.api_reference`."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from pathlib import Path

import zae_limiter
from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference.md"
_HEAD = """\
# Reference

Made from the code by `python -m tests.docs.api_reference`; a test fails when the two differ.

`SyncRateLimiter`, `SyncRepository` and `SyncLease` have the same methods without `async`.
"""
_TWINS = {SyncRateLimiter, SyncRepository, zae_limiter.SyncLease}


def summary(thing: object) -> str:
    """The first paragraph of a docstring."""
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "").split("\n\n")[0]


def signature(name: str, function: object) -> str:
    """`async name(parameters) -> result`, as one line."""
    found = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    text = str(found.replace(parameters=parameters)).replace("'", "")
    text = text.replace("models.", "").replace("building.", "")
    return f"{'async ' if inspect.iscoroutinefunction(function) else ''}{name}{text}"


def members(kind: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties, the inherited ones of ours included."""
    for name, value in sorted(inspect.getmembers_static(kind)):
        if name.startswith("_") or name in Exception.__dict__ or name in BaseException.__dict__:
            continue
        if isinstance(value, property):
            yield f"`{name}`", summary(value)
        elif isinstance(value, classmethod | staticmethod):
            yield f"`{signature(name, value.__func__)}`", summary(value.__func__)
        elif inspect.isfunction(value):
            yield f"`{signature(name, value)}`", summary(value)


def section(name: str) -> str:
    """One public name."""
    thing = getattr(zae_limiter, name)
    lines = [f"## `{name}`\n", summary(thing) + "\n"]
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        lines += [f"- `{member.name}` = `{member.value!r}`" for member in thing]
    elif isinstance(thing, type) and thing not in _TWINS:
        lines += [f"- {head}: {text}".replace("\n", " ") for head, text in members(thing)]
    return "\n".join(lines) + "\n"


def render() -> str:
    """The whole page, the two main classes first."""
    first = [RateLimiter.__name__, "Lease", Repository.__name__, "Limit"]
    types = [n for n in zae_limiter.__all__ if inspect.isclass(getattr(zae_limiter, n))]
    plain = [n for n in zae_limiter.__all__ if n not in types]
    others = "Also: " + ", ".join(f"`{name}`" for name in plain) + ".\n"
    names = [*first, *(n for n in types if n not in first)]
    return "\n".join([_HEAD, *(section(name) for name in names), others])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
