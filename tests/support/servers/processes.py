"""Starts servers on free loopback ports and ends them again."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.servers import install
from tests.support.servers.install import ServerMissing

_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0
_PORTS_TRIED = 3


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens, and whom it lets in.

    Without a key pair, the credentials of the environment are meant.
    """

    url: str
    region: str = "us-east-1"
    access_key: str | None = None
    secret_key: str | None = None


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How to start a server on a given port. The key pair is made up unless the server checks."""

    command: Callable[[int], list[str]]
    environment: Callable[[int], Mapping[str, str]] = lambda port: {}
    folder: Callable[[], Path] | None = None
    access_key: str = "AKIATESTTESTTESTTEST"
    secret_key: str = "test"


_DYNOXIDE = _Recipe(
    lambda port: [str(install.dynoxide()), "serve", "--host", "127.0.0.1", "--port", str(port)]
)
# It lets in only the key pair of AWS's own documentation.
_EXTENDDB = _Recipe(
    lambda port: [str(install.extenddb()), "serve", "--foreground"],
    lambda port: {
        "EXTENDDB__SERVER__PORT": str(port),
        "EXTENDDB__STORAGE__SQLITE__PATH": ":memory:",
    },
    access_key="AKIAIOSFODNN7EXAMPLE",
    secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
)
_DYNAMODB_LOCAL = _Recipe(
    lambda port: [
        *(install.java(), "-Djava.library.path=./DynamoDBLocal_lib", "-jar", "DynamoDBLocal.jar"),
        *("-sharedDb", "-inMemory", "-disableTelemetry", "-port", str(port)),
    ],
    folder=install.dynamodb_local,
)
# It keeps its tables and streams in a file of its folder, which is one of SQLite.
_DYNAMODB_LOCAL_ON_DISK = _Recipe(
    lambda port: [
        *(install.java(), f"-Djava.library.path={install.dynamodb_local()}/DynamoDBLocal_lib"),
        *("-jar", f"{install.dynamodb_local()}/DynamoDBLocal.jar", "-dbPath", "."),
        *("-sharedDb", "-disableTelemetry", "-port", str(port)),
    ],
)
# Lambdas run as its children: they must see the code that was deployed, and no other.
_MINISTACK = _Recipe(
    lambda port: [str(install.ministack()), "-m", "ministack"],
    lambda port: {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "PYTHONPATH": "",
        "PYTHONWARNINGS": "",
    },
)
_RECIPES = {
    "dynoxide": _DYNOXIDE,
    "dynamodb-local": _DYNAMODB_LOCAL,
    "dynamodb-local-on-disk": _DYNAMODB_LOCAL_ON_DISK,
    "extenddb": _EXTENDDB,
    "ministack": _MINISTACK,
}


@contextmanager
def start(name: str, folder: Path | None = None) -> Iterator[Server]:
    """Run a server for the length of a block: `dynoxide`, `dynamodb-local` (or
    `dynamodb-local-on-disk`), `extenddb` or `ministack`. `folder`: where it keeps its files, if
    the caller wants to look at them."""
    if name not in _RECIPES:
        raise ServerMissing(f"no server is called {name!r}: there are {', '.join(_RECIPES)}")
    recipe = _RECIPES[name]
    with tempfile.TemporaryDirectory() as made, open(Path(made, "log"), "w+b") as log:
        process, port = _spawn(name, recipe, folder or Path(made), log)
        try:
            yield Server(
                f"http://127.0.0.1:{port}",
                access_key=recipe.access_key,
                secret_key=recipe.secret_key,
            )
        finally:
            _end(process)


def _spawn(
    name: str, recipe: _Recipe, scratch: Path, log: IO[bytes]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start it. Someone else may take the free port first: then another is tried."""
    for _ in range(_PORTS_TRIED):
        port = free_port()
        process = subprocess.Popen(
            recipe.command(port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=recipe.folder() if recipe.folder else scratch,
            env={**os.environ, **recipe.environment(port)},
        )
        if _answers(process, port):
            return process, port
        _end(process)
    log.seek(0)
    said = log.read().decode(errors="replace").strip().splitlines()
    raise ServerMissing(f"{name} did not start: {said[-1] if said else 'it said nothing'}")


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until it speaks HTTP; False when it ended or took too long."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
                # Whoever answered must be the one that was started.
                return process.poll() is None
            finally:
                connection.close()
        time.sleep(0.02)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
