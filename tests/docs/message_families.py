"""Finds every message that an error, a warning or a log record of this package may carry.

A message is found where it is made: a text handed to an exception, to `warnings.warn`, to a logger
or to a function that builds an exception, directly or by a variable. Messages of
`ValidationError` name the field and the fix themselves, so that only their common form counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from zae_limiter.backends.sqlite import errors as sqlite_errors
from zae_limiter.core import exceptions

SOURCES = Path(__file__).parents[2] / "src"
# Tools for tests and the demo speak to developers of this package.
_LEFT_OUT = ("testing", "demo", "simulated", "local_aws")
_BUILDERS = {
    "unsent",
    "lost",
    "hopeless",
    "hopeless_now",
    "_refused",
    "_state_error",
    "_warn",
    "_write",
    "log_failed_write",
    "CompatibilityResult",
}
_SPOKEN = {"logger.warning", "logger.error", "warnings.warn", "super().__init__"}
_SHORTEST_CHARS = 8


def explained_by_themselves() -> set[str]:
    """Names of exceptions whose messages name a field and say what it must be."""
    return {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, exceptions.ValidationError)
    } | {"StackOptionError"}


@cache
def speakers() -> set[str]:
    """Names of exceptions whose messages a guide has to explain."""
    ours = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    return (ours | {"RuntimeError", "ImportError"}) - explained_by_themselves()


@cache
def families() -> dict[str, str]:
    """The place of every message, by the longest part of it that is always the same."""
    found: dict[str, str] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        if not any(word in part for part in path.parts for word in _LEFT_OUT):
            for line, template in _templates(ast.parse(path.read_text(encoding="utf-8"))):
                fixed = max(re.split(r"\{\}|%[a-z.0-9]+", template), key=len).lstrip(" :.,'\"[()")
                if len(fixed) >= _SHORTEST_CHARS:
                    found.setdefault(
                        fixed.replace("`", "").rstrip(" :.'\"[("), f"{path.name}:{line}"
                    )
    for table in (sqlite_errors._UNAVAILABLE, sqlite_errors._DAMAGED):
        found |= dict.fromkeys(table.values(), "sqlite/errors.py")
    return found


def _templates(tree: ast.Module) -> Iterator[tuple[int, str]]:
    texts = _assigned(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _speaks(node.func):
            named = [each.value for each in node.keywords if each.arg == "message"]
            for argument in (*node.args, *named):
                yield from ((node.lineno, text) for text in _texts(argument, texts))


def _speaks(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr in speakers() or ast.unparse(called) in _SPOKEN
    return isinstance(called, ast.Name) and called.id in speakers() | _BUILDERS


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """Values by the variable that they are assigned to, anywhere in a module."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign):
                found.setdefault(target.id, []).append(node.value)
    return found


def _texts(value: ast.expr, names: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Templates that an expression may be; parts that vary are `{}`."""
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr():
            yield "".join(_part(part) for part in value.values)
        case ast.Name() if value.id in names:
            for assigned in names[value.id]:
                yield from _texts(assigned, {})
        case ast.BinOp():
            yield from (*_texts(value.left, names), *_texts(value.right, names))
        case ast.BoolOp():
            for each in value.values:
                yield from _texts(each, names)
        case ast.IfExp():
            yield from (*_texts(value.body, names), *_texts(value.orelse, names))
        case _:
            pass


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "{}"
