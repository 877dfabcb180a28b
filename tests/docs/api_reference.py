"""Writes docs/reference.md from signatures and docstrings: `python -m tests.docs.api_reference`."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import zae_limiter
from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.opening import DEFAULT_OPTIONS, ConnectOptions, OpenOptions

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference.md"
_HEAD = """\
# Reference

Made from the code by `python -m tests.docs.api_reference`; a test fails when the two differ.

`SyncRateLimiter`, `SyncRepository` and `SyncLease` have the same methods without `async`.
"""
_TWINS = {SyncRateLimiter, SyncRepository, zae_limiter.SyncLease}
MODULES = (
    "integrations",
    "integrations.fastapi",
    "integrations.asgi",
    "integrations.flask",
    "integrations.django",
    "integrations.wsgi",
    "integrations.openai",
    "integrations.anthropic",
    "integrations.llm",
    "integrations.prometheus",
    "integrations.opentelemetry",
    "integrations.log_listener",
    "testing",
    "migrations",
    "schema",
)


def said(thing: object) -> str:
    """The docstring of a thing, as paragraphs; nothing where Python made it."""
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    if isinstance(thing, type) and text.startswith(f"{thing.__name__}("):
        return ""
    return "\n\n".join(map(paragraph, text.split("\n\n")))


def paragraph(text: str) -> str:
    """A paragraph as it is, or as code if it is some: no sentence is Python."""
    code = inspect.cleandoc(text)
    try:
        compile(code, "docstring", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return text
    return textwrap.indent(code, "    ")


def one_line(thing: object) -> str:
    return " ".join(inspect.cleandoc(getattr(thing, "__doc__", None) or "").split())


def annotation(value: object) -> str:
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return re.sub(r"\b(models|building|stored_limits)\.", "", text).replace("'", "")


def parameter(given: inspect.Parameter) -> str:
    text = str(given.replace(annotation=given.empty, default=given.empty))
    if given.annotation is not given.empty:
        text += f": {annotation(given.annotation)}"
    return text if given.default is given.empty else f"{text} = {default_of(given.default)}"


def default_of(value: object) -> str:
    """A default as a caller would write it, without the place of a function in memory."""
    if isinstance(value, enum.Enum):
        return str(value)
    return value.__name__ if inspect.isroutine(value) else repr(value)


def signature(name: str, function: object) -> str:
    """`async name(parameters) -> result`, as one line."""
    found = inspect.signature(function)  # type: ignore[arg-type]
    shown, has_star = [], False
    for given in found.parameters.values():
        if given.name not in ("self", "cls"):
            if given.kind is given.KEYWORD_ONLY and not has_star:
                shown.append("*")
            has_star = has_star or given.kind in (given.KEYWORD_ONLY, given.VAR_POSITIONAL)
            shown.append(parameter(given))
    result = found.return_annotation
    told = "" if result is found.empty else f" -> {annotation(result)}"
    kind = "async " if inspect.iscoroutinefunction(function) else ""
    return f"{kind}{name}({', '.join(shown)}){told}"


def fields(kind: type) -> Iterator[str]:
    """The fields of a dataclass, each with its type and its default."""
    for each in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        if not each.name.startswith("_"):
            text = f"{each.name}: {annotation(each.type)}"
            if each.default is not dataclasses.MISSING:
                text += f" = {default_of(each.default)}"
            yield f"- field `{text}`"


def members(kind: type) -> Iterator[str]:
    """Public methods and properties, the inherited ones of ours included."""
    for name, value in sorted(inspect.getmembers_static(kind)):
        if name.startswith("_") or name in Exception.__dict__ or name in BaseException.__dict__:
            continue
        if isinstance(value, property):
            yield f"- **{name}**<br>{one_line(value)}"
        elif isinstance(value, classmethod | staticmethod):
            value = value.__func__
        if inspect.isfunction(value):
            yield f"- **{name}**<br>`{signature(name, value)}`<br>{one_line(value)}"


def section(name: str, thing: object) -> str:
    """One public name: what it is, its fields, its methods."""
    if inspect.isroutine(thing):
        return f"### `{name}`\n\n`{signature(name, thing)}`\n\n{said(thing)}\n"
    lines = [f"### `{name}`\n", said(thing) + "\n"]
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        lines += [f"- `{member.name}` = `{member.value!r}`" for member in thing]
    elif isinstance(thing, type) and thing not in _TWINS:
        lines += attributes(thing)
        lines += [*fields(thing), *members(thing)]
    return "\n".join(lines) + "\n"


def attributes(kind: type) -> list[str]:
    """What callers find on an exception besides its message: the attributes that it sets."""
    if not issubclass(kind, Exception) or "__init__" not in vars(kind):
        return []
    source = inspect.getsource(vars(kind)["__init__"])
    names = dict.fromkeys(re.findall(r"self\.([a-z]\w*)(?:: [^=]+)? = ", source))
    return [f"- attribute `{name}`" for name in names]


def options() -> str:
    """The options of `Repository.open` and `connect`, with what their source says of each."""
    told = {**option_texts(ConnectOptions), **option_texts(OpenOptions)}
    types = OpenOptions.__annotations__
    rows = [
        f"| `{name}` | `{annotation(kind.__forward_arg__)}` | `{DEFAULT_OPTIONS[name]!r}` |"  # type: ignore[literal-required]
        f" {told[name]} |".replace(" | None`", "` or none")
        for name, kind in types.items()
    ]
    return "\n".join(
        [
            "### Options of `open` and `connect`\n",
            "`Repository.open`, `SyncRepository.open` and both `connect` take these by name;"
            " `connect` takes all but `create` and `auto_update`.\n",
            "| option | type | default | meaning |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def option_texts(kind: type) -> dict[str, str]:
    """The text below each field of a class, in its source."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    pairs = zip(tree.body, tree.body[1:], strict=False)
    return {
        field.target.id: text.value.value
        for field, text in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def public_names(module: ModuleType) -> list[str]:
    """The names that a module offers: those of `__all__`, else those that it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def module_part(name: str) -> str:
    """A module that users import by its path."""
    module = importlib.import_module(f"zae_limiter.{name}")
    parts = [f"## zae_limiter.{name}\n", said(module).split("\n\n")[0] + "\n"]
    names = [each for each in public_names(module) if callable(getattr(module, each))]
    return "\n".join([*parts, *(section(each, getattr(module, each)) for each in names)])


def render() -> str:
    """The whole page, the two main classes first."""
    first = [RateLimiter.__name__, "Lease", Repository.__name__, "Limit"]
    types = [n for n in zae_limiter.__all__ if inspect.isclass(getattr(zae_limiter, n))]
    plain = [n for n in zae_limiter.__all__ if n not in types]
    others = "Also: " + ", ".join(f"`{name}`" for name in plain) + ".\n"
    names = [*first, *(n for n in types if n not in first)]
    main = [section(name, getattr(zae_limiter, name)) for name in names]
    main.insert(3, options())
    return "\n".join([_HEAD, "## zae_limiter\n", *main, others, *map(module_part, MODULES)])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
