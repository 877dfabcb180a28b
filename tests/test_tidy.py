"""The style guide, where a machine can execute it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "zae_limiter"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CODE = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]

# A folder imports only from itself and from those before it; what is no folder comes last.
LAYERS = ["core", "ports", "local", "flows", "runtime", "backends", "infra", "facades", "edges"]
EDGES = {"cli", "testing", "visualization", "migrations"}
PURE = {"core", "flows"}
BANNED_WHEN_PURE = {
    "asyncio": "await Io instead",
    "logging.handlers": "log through the package's logger",
    "os": "take it as an argument",
    "random": "ask Io.entropy",
    "secrets": "ask Io.entropy",
    "socket": "that is a backend's business",
    "sqlite3": "that is a backend's business",
    "time": "ask Io.now_ms",
}
LONGEST_FILE_LINES = 500
LONGEST_FUNCTION_LINES = 50


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer(module: str) -> str:
    """The layer of a dotted module below the package, such as `flows.acquire`."""
    first = module.split(".")[0]
    if first == "_version":
        return "core"
    if first in LAYERS:
        return first
    return "edges" if first in EDGES else "facades"


def module_of(path: Path) -> str:
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Absolute names of everything a file imports."""
    package = ["zae_limiter", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield from (f"{start}.{alias.name}" for alias in node.names)


PACKAGE_FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=name_of)
def test_dependencies_point_one_way(path: Path) -> None:
    own = LAYERS.index(layer(module_of(path)))
    for imported in imports(path):
        if imported.startswith("zae_limiter."):
            other = LAYERS.index(layer(imported.removeprefix("zae_limiter.")))
            assert other <= own, f"{name_of(path)} must not import {imported}"


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=name_of)
def test_pure_layers_ask_nothing_of_the_world(path: Path) -> None:
    if layer(module_of(path)) not in PURE:
        return
    for imported in imports(path):
        reason = BANNED_WHEN_PURE.get(imported.split(".")[0])
        assert reason is None, f"{name_of(path)} imports {imported}: {reason}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"now", "utcnow", "today"}, f"{name_of(path)}:{node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_await_under_a_lock(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.With) and any("lock" in ast.unparse(i).lower() for i in node.items):
            awaits = [inner for inner in ast.walk(node) if isinstance(inner, ast.Await)]
            assert not awaits, f"{name_of(path)}:{node.lineno} awaits while holding a lock"


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_files_and_functions_stay_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= LONGEST_FILE_LINES, f"{name_of(path)} has {lines} lines"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            where = f"{name_of(path)}:{node.lineno} {node.name}"
            assert length <= LONGEST_FUNCTION_LINES, f"{where} has {length} lines"


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_nothing_is_left_unfinished(path: Path) -> None:
    if path == Path(__file__):
        return
    text = path.read_text(encoding="utf-8")
    found = re.search(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|^# ?[=\-*#]{3,}", text, re.M)
    assert found is None, f"{name_of(path)}: {found}"
    skipped = re.search(r"pytest\.(mark\.)?(skip|xfail)", text)
    assert skipped is None, f"{name_of(path)} skips a test"


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=name_of)
def test_only_the_command_line_prints(path: Path) -> None:
    if "cli" in path.parts:
        return
    for node in ast.walk(tree(path)):
        is_print = isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
        assert not is_print, f"{name_of(path)} prints"


def test_no_module_is_dead() -> None:
    used = {imported for path in PACKAGE_FILES for imported in imports(path)}
    for path in PACKAGE_FILES:
        public = {"bucket"}
        if path.name in {"__init__.py", "__main__.py"} or module_of(path).startswith("testing"):
            continue
        if module_of(path) in public:
            continue
        full = f"zae_limiter.{module_of(path)}"
        known = any(name == full or name.startswith(f"{full}.") for name in used)
        assert known or _is_run_as_a_module(full), f"nothing imports {full}"


def _is_run_as_a_module(full: str) -> bool:
    return any(f'"{full}"' in path.read_text(encoding="utf-8") for path in PACKAGE_FILES)


def test_no_function_is_dead() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    words = re.findall(r"\w+", text)
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    public = set(re.findall(r'"(\w+)"', (PACKAGE / "__init__.py").read_text(encoding="utf-8")))
    for path in SOURCES:
        for node in tree(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if node.name in public or node.decorator_list or "testing" in path.parts:
                    continue
                assert counts[node.name] > 1, f"{name_of(path)}: nothing uses {node.name}"


def test_the_seven_documented_functions_exist() -> None:
    defined = {n.name for n in tree(PACKAGE / "bucket.py").body if hasattr(n, "name")}
    assert {
        "build_limit_status",
        "calculate_available",
        "calculate_retry_after",
        "force_consume",
        "refill_bucket",
        "try_consume",
        "would_refill_satisfy",
    } <= defined


def test_no_file_names_the_place_it_was_written_in() -> None:
    here = str(ROOT.parent) + "/"
    for path in [*CODE, *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        assert here not in path.read_text(encoding="utf-8"), name_of(path)
