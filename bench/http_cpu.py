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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

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


class HttpSubject(NamedTuple):
    """An application to measure, and the store that it needs: none, a file, or a server."""

    measure: Callable[[asyncio.Runner, str], float]
    store: Literal["", "file", "redis", "dynamodb"] = ""


def _fastapi(make: Callable[[str], subjects.Asgi]) -> Callable[[asyncio.Runner, str], float]:
    # Made in the loop: some clients of Redis belong to the loop that is running.
    async def made(url: str) -> subjects.Asgi:
        return make(url)

    return lambda loop, url: _asgi(loop, loop.run(made(url)))


def _ours(loop: asyncio.Runner, url: str) -> float:
    return _asgi(loop, subjects.fastapi_ours(loop, url))


def _flask(make: Callable[[str], subjects.Wsgi]) -> Callable[[asyncio.Runner, str], float]:
    return lambda loop, url: _wsgi(make(url))


SUBJECTS: dict[str, HttpSubject] = {
    "FastAPI, no limits": HttpSubject(_fastapi(lambda url: subjects.fastapi_app())),
    "FastAPI, zae-limiter, memory": HttpSubject(_ours),
    "FastAPI, zae-limiter, SQLite": HttpSubject(_ours, "file"),
    "FastAPI, zae-limiter, DynamoDB": HttpSubject(_ours, "dynamodb"),
    "FastAPI, slowapi, memory": HttpSubject(_fastapi(subjects.fastapi_slowapi)),
    "FastAPI, slowapi, Redis": HttpSubject(_fastapi(subjects.fastapi_slowapi), "redis"),
    "FastAPI, fastapi-limiter, memory": HttpSubject(
        _fastapi(lambda url: subjects.fastapi_fastapi_limiter())
    ),
    "FastAPI, throttled-py, memory": HttpSubject(_fastapi(subjects.fastapi_throttled)),
    "FastAPI, throttled-py, Redis": HttpSubject(_fastapi(subjects.fastapi_throttled), "redis"),
    "Flask, no limits": HttpSubject(_flask(lambda url: subjects.flask_app().wsgi_app)),
    "Flask, zae-limiter, memory": HttpSubject(_flask(subjects.flask_ours)),
    "Flask, zae-limiter, SQLite": HttpSubject(_flask(subjects.flask_ours), "file"),
    "Flask, zae-limiter, DynamoDB": HttpSubject(_flask(subjects.flask_ours), "dynamodb"),
    "Flask, flask-limiter, memory": HttpSubject(_flask(subjects.flask_flask_limiter)),
    "Flask, flask-limiter, Redis": HttpSubject(_flask(subjects.flask_flask_limiter), "redis"),
}


def main() -> None:
    from bench.peers.environment import python

    interpreter = python(_PINS)
    best = dict.fromkeys(SUBJECTS, float("inf"))
    for _ in range(_TURNS):
        for name, subject in SUBJECTS.items():
            with _place(subject) as url:
                best[name] = min(best[name], _measured(interpreter, name, url))
    for name, cpu_s in best.items():
        more_s = cpu_s - best[f"{name.partition(',')[0]}, no limits"]
        print(
            f"{name:34} {1e6 * cpu_s:6.0f} us of CPU per request, {1e6 * more_s:5.0f} for limits, "
            f"{1 / cpu_s:6.0f} requests per second of one core"
        )


def _measured(interpreter: str, name: str, url: str) -> float:
    from bench.servers import CALLER

    environment = {**os.environ, **CALLER, "PYTHONPATH": f"{_ROOT}/src:{_ROOT}"}
    command = [interpreter, "-m", "bench.http_cpu", name, url]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return float(done.stdout)


@contextmanager
def _place(subject: HttpSubject) -> Iterator[str]:
    """The URL of a store that nobody has used."""
    if subject.store == "file":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/limits.db"
    elif subject.store == "":
        yield "memory://"
    else:
        from bench.servers import serving
        from zae_limiter.backends.dynamodb.url import dynamodb_url

        with serving(subject.store) as url:
            is_ours = subject.store == "dynamodb"
            yield dynamodb_url("bench-http", "us-east-1", url) if is_ours else url


def measure(name: str, url: str = "memory://") -> float:
    """The CPU seconds per request of one subject."""
    with asyncio.Runner() as loop:
        return SUBJECTS[name].measure(loop, url)


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
        print(measure(*sys.argv[1:]))
    else:
        main()
