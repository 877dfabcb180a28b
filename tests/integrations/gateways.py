"""Gateways that run behind real servers, for the length of a block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Literal

from tests.docs.test_examples import ROOT
from tests.integrations.gateway_rules import REQUESTS, TOKENS
from tests.support.servers.processes import free_port
from tests.support.web_servers import served
from zae_limiter import SyncRateLimiter, SyncRepository

Kind = Literal["uvicorn", "h11", "wrapped", "flask", "django", "waitress", "forked"]


def command_of(kind: Kind, port: int, workers: int) -> list[str]:
    """The command that serves a gateway."""
    package, place = "tests.integrations", f"127.0.0.1:{port}"
    if kind in ("uvicorn", "h11", "wrapped"):
        http = "h11" if kind == "h11" else "httptools"
        module = "wrapped_gateway" if kind == "wrapped" else "asgi_gateway"
        app = [f"{package}.{module}:app", "--port", str(port), "--http", http]
        return ["uvicorn", *app, "--workers", str(workers)]
    if kind == "waitress":
        return ["waitress", f"--listen={place}", "--threads=8", f"{package}.wsgi_gateway:app"]
    name = "flask" if kind == "forked" else kind
    app = [f"{package}.{name}_gateway:app", "--bind", place, "--threads", "8"]
    # Preloaded, the store is open when the workers are forked.
    return ["gunicorn", *app, "--workers", str(workers), *(["--preload"] * (kind == "forked"))]


class Gateway:
    """A gateway that runs, and a key of its own for each test."""

    def __init__(self, port: int, limiter: SyncRateLimiter, log: Path) -> None:
        self.port = port
        self.limiter = limiter
        self.log = log
        self.key = ""

    def get(self, path: str, key: str | None = None) -> tuple[HTTPResponse, bytes]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            headers = {"x-api-key": self.key if key is None else key}
            connection.request("GET", path, headers=headers if headers["x-api-key"] else {})
            response = connection.getresponse()
            return response, response.read()

    def status(self, path: str, key: str | None = None) -> int:
        return self.get(path, key)[0].status

    @property
    def charged(self) -> tuple[int, int]:
        """The requests and the tokens that the key has been charged."""
        left = self.limiter.available(self.key, "complete")
        return REQUESTS - left["rpm"], TOKENS - left["tpm"]

    def charged_at_last(self, expected: tuple[int, int]) -> tuple[int, int]:
        """What has been charged when the server has noticed that a client has left."""
        deadline_s = time.monotonic() + 20
        while self.charged != expected and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return self.charged


@contextmanager
def gateway_behind(kind: Kind, folder: Path, url: str, workers: int = 1) -> Iterator[Gateway]:
    """Run a gateway on a store."""
    port, log = free_port(), folder / "served"
    settings = {"ZAEL_URL": url, "SERVED_LOG": str(log), "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    with (
        served(command_of(kind, port, workers), port, folder, settings),
        SyncRateLimiter(repository=SyncRepository.open(url=url)) as limiter,
    ):
        yield Gateway(port, limiter, log)
