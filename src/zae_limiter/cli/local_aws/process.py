"""A server in the background: started, found again, and ended, by a file that knows its process.

A process id may be given to another process later. So the file also knows when the process began,
and nothing is ended that began at another time.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ...core.exceptions import InfrastructureError
from .environment import child_environment
from .programs import PROGRAMS, LocalProgram

_READY_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0
_POLL_S = 0.05
_LOG_LINES_IN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that was started: its process, where it listens, and the stack that is in it."""

    kind: str
    pid: int
    began: str
    port: int
    stack: str

    @property
    def is_alive(self) -> bool:
        """Whether the very process still runs."""
        return _began(self.pid) == self.began


class LocalPort:
    """A port on which a server may run, with the files that know it."""

    def __init__(self, cache: Path, port: int) -> None:
        self._cache = cache
        self._port = port
        self._file = cache / f"local-{port}.json"
        self.log = cache / f"local-{port}.log"

    def running(self) -> LocalServer | None:
        """Return the server, if it runs."""
        try:
            found = LocalServer(**json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return found if found.kind in PROGRAMS and found.is_alive else None

    def require_free(self) -> None:
        """Refuse a port that another program listens on."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self._port))
            except OSError as error:
                raise InfrastructureError(
                    f"Port {self._port} is in use: choose another with --port"
                ) from error

    def start(self, kind: str, stack: str) -> LocalServer:
        """Start a server, and wait until it answers."""
        port = self._port
        self.require_free()
        program = PROGRAMS[kind]
        with self.log.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                program.command(self._cache, port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Lambdas are children of it, and have its variables.
                env={**child_environment(port, stack), **program.environment(port)},
                start_new_session=True,
            )
        server = LocalServer(kind, process.pid, _began(process.pid) or "", port, stack)
        self._file.write_text(json.dumps(asdict(server)), encoding="utf-8")
        try:
            self._wait_until_ready(process, program, port)
        except BaseException:
            self._end(server)
            process.wait()
            raise
        return server

    def stop(self) -> LocalServer | None:
        """End the server and its children, and forget it. None when none runs."""
        server = self.running()
        if server is not None:
            self._end(server)
        self._file.unlink(missing_ok=True)
        return server

    def log_lines(self, count: int) -> list[str]:
        """Return the last lines that the server wrote."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-count:]

    def _wait_until_ready(
        self, process: subprocess.Popen[bytes], program: LocalProgram, port: int
    ) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not _answers(port, program.ready_path):
            if process.poll() is not None:
                raise self._failure(f"ended with exit code {process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"does not answer after {_READY_TIMEOUT_S:.0f} seconds")
            time.sleep(_POLL_S)
        if process.poll() is not None:
            raise self._failure("ended, and another program answers on its port")

    def _failure(self, problem: str) -> InfrastructureError:
        said = " / ".join(self.log_lines(_LOG_LINES_IN_ERRORS))
        wrote = f" It wrote: {said}" if said else ""
        return InfrastructureError(f"The local server {problem}.{wrote}")

    def _end(self, server: LocalServer) -> None:
        """End the process and its children: it leads a session of its own."""
        deadline = time.monotonic() + _END_TIMEOUT_S
        _signal(server.pid, signal.SIGTERM)
        while server.is_alive and time.monotonic() < deadline:
            _reap(server.pid)
            time.sleep(_POLL_S)
        if server.is_alive:
            _signal(server.pid, signal.SIGKILL)
        self._file.unlink(missing_ok=True)


@contextmanager
def one_starter(cache: Path) -> Iterator[None]:
    """Keep other commands waiting that would install or start a server meanwhile. Without this, two
    of them start one server each, and forget the one that got the port."""
    with (cache / "local.lock").open("w", encoding="utf-8") as file:
        if sys.platform != "win32":
            import fcntl

            # It is released when the process ends, however it ends.
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _signal(leader_pid: int, number: signal.Signals) -> None:
    # The last process of the group may have ended meanwhile.
    with suppress(ProcessLookupError):
        os.killpg(leader_pid, number)


def _reap(pid: int) -> None:
    """Let a child of this very process go: until then it counts as running."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _began(pid: int) -> str | None:
    """Return a text that tells when a process began; None when there is none, or it has ended."""
    stat = Path("/proc", str(pid), "stat")
    if not Path("/proc/self").exists():
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or None
    try:
        # The name of the program, in brackets, may hold anything.
        fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state == "Z" else started
