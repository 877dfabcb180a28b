"""The servers of a run: each measurement has one that is as good as new.

Our DynamoDB walks through all stream records that it holds, of whatever table, on every write
to a table that has a stream. In a server that all measurements share, the last ones would be
answered many times as slowly as the first.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from tests.support.servers import install, processes
from tests.support.servers.install import ServerMissing

from .counting.dynamodb import DynamoCounter
from .counting.proxy import CountingProxy
from .counting.redis import RedisCounter
from .peers import environment
from .subjects import Store

_START_TIMEOUT_S = 30.0
# Nothing of the machine's own settings is seen by those who call.
CALLER = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}


@contextmanager
def serving(store: Store) -> Iterator[str]:
    """Run a server that nobody has used for the length of a block: its URL, or nothing for
    stores that need none."""
    with _STARTS[store]() as url:
        yield url


@contextmanager
def counting(store: Store) -> Iterator[CountingProxy]:
    """The same, reached by a way on which everything is counted."""
    with serving(store) as url, _COUNTERS[store](url) as counter:
        yield counter


def prepare(store: Store) -> None:
    """Install the server of a store. May take long, and may be interrupted."""
    if store == "dynamodb":
        install.dynoxide()
    elif store == "redis":
        _redis_program()


@contextmanager
def _dynamodb() -> Iterator[str]:
    with processes.start("dynoxide") as server:
        yield server.url


@contextmanager
def _redis() -> Iterator[str]:
    port = processes.free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
    server = subprocess.Popen([_redis_program(), *options], stdout=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(server, port)
        # Its client allows fewer connections than there are tasks, unless it is told so.
        yield f"redis://127.0.0.1:{port}?max_connections=1000"
    finally:
        server.kill()
        server.wait()


def _redis_program() -> str:
    """The one that the peers' environment brings; else that of the system."""
    found = Path(environment.python()).with_name("redis-server")
    program = str(found) if found.exists() else shutil.which("redis-server")
    if program is None:
        raise ServerMissing("there is no redis-server: install it, for example from Debian")
    return program


def _wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as probe:
            probe.sendall(b"PING\r\n")
            if probe.recv(64).startswith(b"+PONG"):
                return
        time.sleep(0.02)
    raise ServerMissing("redis-server did not start")


_STARTS: dict[Store, Callable[[], AbstractContextManager[str]]] = {
    "": lambda: nullcontext(""),
    "dynamodb": _dynamodb,
    "redis": _redis,
}
_COUNTERS: dict[Store, type[CountingProxy]] = {"dynamodb": DynamoCounter, "redis": RedisCounter}
