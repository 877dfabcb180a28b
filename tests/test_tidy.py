"""The style guide, where a machine can execute it. Each test lists every offender at once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "zae_limiter"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CODE = [*SOURCES, *TESTS, *sorted((ROOT / "bench").rglob("*.py"))]

# A folder imports only from itself and from those before it; what is no folder comes last.
LAYERS = ["core", "ports", "local", "flows", "runtime", "backends", "infra", "facades", "edges"]
EDGES = {"__main__", "cli", "integrations", "testing", "visualization", "migrations"}
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

# What is listed and counted here is still to be mended. It only shrinks: an entry or a number
# that is no longer true fails the test that reads it.
SHARED_NAMES: set[str] = set()
MODULES_IN_CYCLES: set[str] = set()
PACKAGES_WITHOUT_DOCSTRING: set[str] = set()
VAGUE_DOCSTRINGS = 0
VAGUE_TEST_NAMES = 0

NAMES_THAT_MAY_BE_SHARED = {"K", "T", "V", "logger"}
VAGUE_FIRST_WORDS = re.compile(r"(The same|Those|What|Of|It|Who|One|Others)\b")
VAGUE_TEST_NAME = re.compile(r"test_(who|what|nor|also|the_same)_|test_\w*_nor_")

Function = ast.FunctionDef | ast.AsyncFunctionDef


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
    for node in ast.walk(tree(path)):
        yield from imported_by(node, path)


def imported_by(node: ast.AST, path: Path) -> Iterator[str]:
    """Absolute names of everything that one statement imports."""
    package = ["zae_limiter", *path.relative_to(PACKAGE).parts[:-1]]
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        start = ".".join([*base, *(node.module or "").split(".")]).strip(".")
        yield from (f"{start}.{alias.name}" for alias in node.names)


def assert_none(offenders: Iterable[str], rule: str) -> None:
    """Fail with all offenders in one message."""
    found = sorted(offenders)
    assert not found, "\n".join([f"{len(found)} times: {rule}", *found])


def assert_only_known(found: dict[str, str], known: set[str], rule: str) -> None:
    """Fail for offenders that are not listed, and for those listed that are none any more."""
    new = [f"{name}: {where}" for name, where in found.items() if name not in known]
    mended = [f"{name}: mended, remove it from the list" for name in known - found.keys()]
    assert_none([*new, *mended], rule)


def assert_ratchet(offenders: Iterable[str], allowed: int, rule: str) -> None:
    """Fail when there are more offenders than allowed, and when the number can go down."""
    found = sorted(offenders)
    assert len(found) == allowed, "\n".join([f"{len(found)}, not {allowed}: {rule}", *found])


PACKAGE_FILES = sorted(PACKAGE.rglob("*.py"))


def test_layers_import_only_from_layers_before_them() -> None:
    assert_none(
        (
            f"{name_of(path)} imports {imported}"
            for path in PACKAGE_FILES
            for imported in imports(path)
            if imported.startswith("zae_limiter.")
            and LAYERS.index(layer(imported.removeprefix("zae_limiter.")))
            > LAYERS.index(layer(module_of(path)))
        ),
        "a layer imports from one after it",
    )


def test_pure_layers_read_no_clock_entropy_or_environment() -> None:
    offenders: list[str] = []
    for path in PACKAGE_FILES:
        if layer(module_of(path)) not in PURE:
            continue
        for imported in imports(path):
            reason = BANNED_WHEN_PURE.get(imported.split(".")[0])
            if reason is not None:
                offenders.append(f"{name_of(path)} imports {imported}: {reason}")
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"}:
                offenders.append(f"{name_of(path)}:{node.lineno} reads {node.attr}")
    assert_none(offenders, "a pure layer asks something of the world")


def test_locks_are_never_held_during_an_await() -> None:
    assert_none(
        (
            f"{name_of(path)}:{node.lineno}"
            for path in SOURCES
            for node in ast.walk(tree(path))
            if isinstance(node, ast.With)
            and any("lock" in ast.unparse(item).lower() for item in node.items)
            and any(isinstance(inner, ast.Await) for inner in ast.walk(node))
        ),
        "a block awaits while it holds a lock",
    )


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, Function))


def test_files_and_functions_stay_short() -> None:
    offenders: list[str] = []
    for path in CODE:
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > LONGEST_FILE_LINES:
            offenders.append(f"{name_of(path)} has {lines} lines")
        for node in functions(path):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > LONGEST_FUNCTION_LINES:
                offenders.append(f"{name_of(path)}:{node.lineno} {node.name} has {length} lines")
    assert_none(
        offenders, f"at most {LONGEST_FILE_LINES} per file, {LONGEST_FUNCTION_LINES} per function"
    )


UNFINISHED = {
    r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|^# ?[=\-*#]{3,}": "is unfinished or a banner",
    r"pytest\.(mark\.)?(skip|xfail|importorskip)": "skips a test",
}


def test_nothing_is_unfinished_or_skipped() -> None:
    assert_none(
        (
            f"{name_of(path)}: {found[0]!r} {what}"
            for path in CODE
            if path != Path(__file__)
            for pattern, what in UNFINISHED.items()
            for found in re.finditer(pattern, path.read_text(encoding="utf-8"), re.M)
        ),
        "a file is not finished",
    )


def test_only_the_command_line_prints() -> None:
    assert_none(
        (
            f"{name_of(path)}:{node.lineno}"
            for path in PACKAGE_FILES
            if "cli" not in path.parts
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
        ),
        "a module outside the command line prints",
    )


def test_every_module_is_imported_or_run() -> None:
    used = {imported for path in PACKAGE_FILES for imported in imports(path)}
    public = {
        "bucket",
        "config_cache",
        "exceptions",
        "models",
        "naming",
        "repository_protocol",
        "schema",
        "version",
    }
    assert_none(
        (
            f"zae_limiter.{module}"
            for path in PACKAGE_FILES
            if path.name not in {"__init__.py", "__main__.py"}
            for module in [module_of(path)]
            if not module.startswith(("testing", "integrations"))
            and module not in public
            and not _is_imported(f"zae_limiter.{module}", used)
            and not _is_run_as_a_module(f"zae_limiter.{module}")
        ),
        "nothing imports a module",
    )


def _is_imported(full: str, used: set[str]) -> bool:
    return any(name == full or name.startswith(f"{full}.") for name in used)


def _is_run_as_a_module(full: str) -> bool:
    return any(f'"{full}"' in path.read_text(encoding="utf-8") for path in PACKAGE_FILES)


def test_every_function_and_class_is_used() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in SOURCES:
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8")):
            counts[word] += 1
    public = set(re.findall(r'"(\w+)"', (PACKAGE / "__init__.py").read_text(encoding="utf-8")))
    assert_none(
        (
            f"{name_of(path)}:{node.lineno} {node.name}"
            for path in SOURCES
            if "testing" not in path.parts
            for node in tree(path).body
            if isinstance(node, Function | ast.ClassDef)
            and node.name not in public
            # Python itself calls these.
            and not (node.name.startswith("__") and node.name.endswith("__"))
            and not node.decorator_list
            and counts[node.name] < 2
        ),
        "nothing uses a function or class",
    )


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
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    assert_none(
        (name_of(path) for path in [*CODE, *pages] if here in path.read_text(encoding="utf-8")),
        f"a file names {here}",
    )


def run_at_import(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that importing a module executes; what only type checkers read is none."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from run_at_import(node.orelse)
        elif not isinstance(node, Function):
            for part in ("body", "orelse", "handlers", "finalbody"):
                yield from run_at_import(getattr(node, part, []))


def defined_names(path: Path) -> Iterator[str]:
    """Names that a module defines for others: no imports, no command of the command line."""
    for node in tree(path).body:
        if isinstance(node, Function | ast.ClassDef):
            if not any(map(_is_command, node.decorator_list)):
                yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _is_command(decorator: ast.expr) -> bool:
    return re.search(r"\.(command|group)\b", ast.unparse(decorator).split("(")[0]) is not None


def test_public_names_are_defined_in_one_module() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE_FILES:
        for name in set(defined_names(path)) - NAMES_THAT_MAY_BE_SHARED:
            if not name.startswith("_"):
                homes[name].append(module_of(path))
    shared = {name: ", ".join(found) for name, found in homes.items() if len(found) > 1}
    assert_only_known(shared, SHARED_NAMES, "a name means two things")


def import_graph() -> dict[str, set[str]]:
    """The modules that each module of the package imports when it is imported."""
    paths = {module_of(path): path for path in PACKAGE_FILES}
    graph: dict[str, set[str]] = {module: set() for module in paths}
    for module, path in paths.items():
        for node in run_at_import(tree(path).body):
            for imported in imported_by(node, path):
                found = imported.removeprefix("zae_limiter").removeprefix(".")
                if imported.startswith("zae_limiter"):
                    graph[module].add(found if found in paths else found.rpartition(".")[0])
    return graph


def way_back(graph: dict[str, set[str]], start: str) -> list[str]:
    """A shortest way along imports from a module to itself; empty when there is none."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:
        for step in sorted(graph[way[-1]]):
            if step == start:
                return [*way, start]
            if step not in seen:
                seen.add(step)
                ways.append([*way, step])
    return []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = import_graph()
    assert sum(map(len, graph.values())) > 2 * len(graph), "imports are not found"
    ways = {module: way_back(graph, module) for module in graph}
    cycles = {module: " -> ".join(way) for module, way in ways.items() if way}
    assert_only_known(cycles, MODULES_IN_CYCLES, "modules import each other in a circle")


def test_docstrings_begin_with_their_subject() -> None:
    assert_ratchet(
        (
            f"{name_of(path)}:{getattr(node, 'lineno', 1)} {said.splitlines()[0]}"
            for path in SOURCES
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Module | ast.ClassDef | Function)
            for said in [ast.get_docstring(node) or ""]
            if VAGUE_FIRST_WORDS.match(said)
        ),
        VAGUE_DOCSTRINGS,
        "a docstring begins with a word that has no noun; lower the number when one is mended",
    )


def test_every_package_says_what_it_is_for() -> None:
    missing = {
        module_of(path) or "zae_limiter": "needs a docstring of at least a sentence"
        for path in PACKAGE_FILES
        if path.name == "__init__.py"
        and not re.search(r"\w+ \w+.*\.", ast.get_docstring(tree(path)) or "", re.S)
    }
    assert_only_known(missing, PACKAGES_WITHOUT_DOCSTRING, "a package does not say what it is for")


def test_names_of_tests_stand_alone() -> None:
    assert_ratchet(
        (
            f"{name_of(path)}:{node.lineno} {node.name}"
            for path in TESTS
            for node in functions(path)
            if VAGUE_TEST_NAME.match(node.name)
        ),
        VAGUE_TEST_NAMES,
        "a test's name needs another to be understood; lower the number when one is mended",
    )
