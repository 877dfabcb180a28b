"""The zip of a Lambda's code: equal sources make equal bytes.

The zip holds the modules that the handler imports, at once or later, of this package and of the
Lambda's own, and nothing else: the runtime of Lambda has boto3. They are pure Python,
so that the machine that builds the zip does not matter.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from .aggregator_resources import HANDLER, RUNTIME

_PACKAGES = ("zae_limiter", "zae_limiter_aggregator", "zae_limiter_provisioner")
# Facades import these to deploy, and to use aiobotocore. A Lambda does neither.
_LEFT_OUT = ("zae_limiter.infra", "zae_limiter.backends.dynamodb.wire.aiobotocore_transport")
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o100644
_UNIX = 3


@dataclass(frozen=True)
class LambdaPackage:
    """A Lambda package is the zip of a function's code."""

    content: bytes
    files: tuple[str, ...]
    handler: str = HANDLER
    runtime: str = RUNTIME

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the zip, in hexadecimal."""
        return sha256(self.content).hexdigest()


def build_lambda_package(handler: str = HANDLER) -> LambdaPackage:
    """Build the package of a handler, by default the aggregator's."""
    roots = _find_roots()
    found = _closure(handler.rpartition(".")[0], roots)
    sources = {_arcname(path, roots): path.read_bytes() for path in found.values()}
    for name, source in sources.items():
        _check(name, source)
    return LambdaPackage(_zip(sources), tuple(sorted(sources)), handler)


def _find_roots() -> dict[str, Path]:
    roots: dict[str, Path] = {}
    for name in _PACKAGES:
        spec = find_spec(name)
        assert spec is not None, f"{name} is not installed"
        assert spec.origin is not None, f"{name} is not a package"
        roots[name] = Path(spec.origin).parent
    return roots


def _closure(start: str, roots: dict[str, Path]) -> dict[str, Path]:
    """Return the modules that importing and using a module may import, by name."""
    found: dict[str, Path] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        path = None if name in found else _path_of(name, roots)
        if path is not None:
            found[name] = path
            waiting += _parents(name)
            waiting += _imported(name, path)
    return found


def _path_of(module: str, roots: dict[str, Path]) -> Path | None:
    root, *parts = module.split(".")
    if root not in roots or module.startswith(_LEFT_OUT):
        return None
    place = roots[root].joinpath(*parts)
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _parents(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _imported(module: str, path: Path) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _run_statements(ast.parse(path.read_bytes()).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(package, node)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _run_statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield everything in the statements, but for imports that only type checkers read."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _run_statements(node.orelse)
        else:
            yield node
            yield from _run_statements(ast.iter_child_nodes(node))


def _base(package: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def _arcname(path: Path, roots: dict[str, Path]) -> str:
    for name, root in roots.items():
        if path.is_relative_to(root):
            return f"{name}/{path.relative_to(root).as_posix()}"
    raise ValueError(f"{path} is in none of {_PACKAGES}")


def _check(name: str, source: bytes) -> None:
    """Refuse a source that the Lambda's Python could not compile."""
    major, minor = RUNTIME.removeprefix("python").split(".")
    ast.parse(source, name, feature_version=(int(major), int(minor)))


def _zip(sources: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.external_attr = _READABLE << 16
            entry.create_system = _UNIX
            # Compressed bytes differ from one release of zlib to the next.
            entry.compress_type = zipfile.ZIP_STORED
            archive.writestr(entry, sources[name])
    return packed.getvalue()
