"""CPU for one limited request, beside the middleware of other limiters.

    python -m bench.http_cpu

Requests are handed to the application without a server, one after the other, so that the figures
are of the framework and the limiter alone. Each subject runs in a process of its own, several times
in turn; the best round counts, because other work on the machine only ever adds.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import http_subjects as subjects

_ROOT = Path(__file__).parent.parent
_PINS = Path(__file__).parent / "http-peer-constraints.txt"
_TURNS, _ROUNDS, _REQUESTS = 2, 5, 300
_ENVIRON = {
    "REQUEST_METHOD": "GET",
    "SCRIPT_NAME": "",
    "PATH_INFO": "/limited",
    "QUERY_STRING": "",
    "SERVER_NAME": "localhost",
    "SERVER_PORT": "80",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "REMOTE_ADDR": "192.0.2.1",
    "HTTP_HOST": "localhost",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "http",
    "wsgi.errors": sys.stderr,
    "wsgi.multithread": False,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
}
_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.4"},
    "http_version": "1.1",
    "method": "GET",
    "scheme": "http",
    "path": "/limited",
    "raw_path": b"/limited",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"host", b"localhost"), (b"user-agent", b"bench"), (b"accept", b"*/*")],
    "client": ("192.0.2.1", 5),
    "server": ("localhost", 80),
}
SUBJECTS: dict[str, Callable[[asyncio.Runner, str], float]] = {
    "FastAPI, no limits": lambda loop, folder: _asgi(loop, subjects.fastapi_app()),
    "FastAPI, zae-limiter, memory": lambda loop, folder: _asgi(
        loop, subjects.fastapi_ours(loop, "memory://")
    ),
    "FastAPI, zae-limiter, SQLite": lambda loop, folder: _asgi(
        loop, subjects.fastapi_ours(loop, f"sqlite:///{folder}/limits.db")
    ),
    "FastAPI, slowapi, memory": lambda loop, folder: _asgi(loop, subjects.fastapi_slowapi()),
    "FastAPI, fastapi-limiter, memory": lambda loop, folder: _asgi(
        loop, subjects.fastapi_fastapi_limiter()
    ),
    "FastAPI, throttled-py, memory": lambda loop, folder: _asgi(loop, subjects.fastapi_throttled()),
    "Flask, no limits": lambda loop, folder: _wsgi(subjects.flask_app().wsgi_app),
    "Flask, zae-limiter, memory": lambda loop, folder: _wsgi(subjects.flask_ours("memory://")),
    "Flask, zae-limiter, SQLite": lambda loop, folder: _wsgi(
        subjects.flask_ours(f"sqlite:///{folder}/limits.db")
    ),
    "Flask, flask-limiter, memory": lambda loop, folder: _wsgi(subjects.flask_flask_limiter()),
}


def main() -> None:
    from bench.peers.environment import python

    interpreter = python(_PINS)
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}/src:{_ROOT}"}
    best = dict.fromkeys(SUBJECTS, float("inf"))
    for _ in range(_TURNS):
        for name in SUBJECTS:
            command = [interpreter, "-m", "bench.http_cpu", name]
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
            best[name] = min(best[name], float(done.stdout))
    for name, cpu_s in best.items():
        more_s = cpu_s - best[f"{name.partition(',')[0]}, no limits"]
        print(f"{name:34} {1e6 * cpu_s:6.0f} us of CPU per request, {1e6 * more_s:5.0f} for limits")


def measure(name: str) -> float:
    """The CPU seconds per request of one subject."""
    with asyncio.Runner() as loop, tempfile.TemporaryDirectory() as folder:
        return SUBJECTS[name](loop, folder)


def _asgi(loop: asyncio.Runner, app: subjects.Asgi) -> float:
    async def some() -> float:
        started_s = time.process_time()
        for _ in range(_REQUESTS):
            await _ask(app)
        return time.process_time() - started_s

    return min(loop.run(some()) for _ in range(_ROUNDS)) / _REQUESTS


async def _ask(app: subjects.Asgi) -> None:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(dict(_SCOPE), receive, send)
    assert statuses == [200], statuses


def _wsgi(app: subjects.Wsgi) -> float:
    def some() -> float:
        started_s = time.process_time()
        for _ in range(_REQUESTS):
            statuses: list[str] = []
            environ = {**_ENVIRON, "wsgi.input": io.BytesIO()}
            body = app(environ, lambda status, *_, seen=statuses: seen.append(status))
            assert b"".join(body)
            body.close()  # type: ignore[attr-defined]
            assert statuses == ["200 OK"]
        return time.process_time() - started_s

    return min(some() for _ in range(_ROUNDS)) / _REQUESTS


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(measure(sys.argv[1]))
    else:
        main()
