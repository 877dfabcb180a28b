"""The gateway of examples/, run as its README says, with limits that hardly refill."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from tests.docs.test_examples import ROOT
from tests.support.model_server import ModelServer, model_server
from tests.support.servers.processes import free_port
from tests.support.web_servers import environment, served
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

EXAMPLE = ROOT / "examples" / "gateway"
KEYS = {"sk-demo-1": "acme-search-key-1", "sk-demo-2": "acme-search-key-2"}
PROJECT, ORGANISATION = "acme-search", "acme"
REQUESTS, TOKENS, PROJECT_REQUESTS = 150, 40_000, 250
# They gain a token in many days, so that what is missing is what was charged.
_SLOW_SECONDS = 10**8


class ExampleGateway:
    """The gateway, its store, its log, and its provider."""

    def __init__(
        self, port: int, metrics_port: int, limiter: SyncRateLimiter, log: Path, models: ModelServer
    ) -> None:
        self.port = port
        self.metrics_port = metrics_port
        self.limiter = limiter
        self.log = log
        self.models = models

    def post(self, body: Any, key: str | None = "sk-demo-1") -> tuple[HTTPResponse, bytes]:
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            return response, response.read()

    def charged(self, entity_id: str) -> tuple[int, int]:
        """The requests and tokens that an entity has been charged, its parents left aside."""
        states = self.limiter.repository.get_buckets(entity_id, "chat")
        left = {state.limit_name: state.tokens for state in states}
        requests, tokens = limits_of(entity_id)
        return (
            requests.capacity - left.get("rpm", requests.capacity),
            tokens.capacity - left.get("tpm", tokens.capacity),
        )

    def all_charged(self) -> dict[str, tuple[int, int]]:
        """The charges of every entity."""
        return {each: self.charged(each) for each in (*KEYS.values(), PROJECT, ORGANISATION)}

    def logged(self) -> dict[str, tuple[int, int]]:
        """The requests and tokens of every entity by the gateway's own log: parents pay for all."""
        calls: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            told = json.loads(line)
            for each in (told["entity_id"], PROJECT, ORGANISATION):
                calls[each] += told["calls"]
                tokens[each] += told["tokens"]
        names = (*KEYS.values(), PROJECT, ORGANISATION)
        return {each: (calls[each], tokens[each]) for each in names}

    def metrics(self, workers: int = 1) -> str:
        """The metrics of all workers."""
        told = ""
        for port in range(self.metrics_port, self.metrics_port + workers):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                told += answer.read().decode()
        return told


def limits_of(entity_id: str) -> list[Limit]:
    """The limits of an entity under test: the project's requests are the first to run out."""
    requests = PROJECT_REQUESTS if entity_id == PROJECT else REQUESTS
    factor = 1 if entity_id in KEYS.values() else 3
    if entity_id == ORGANISATION:
        requests *= factor
    return [
        Limit("rpm", requests, 1, _SLOW_SECONDS),
        Limit("tpm", factor * TOKENS, 1, _SLOW_SECONDS),
    ]


def chat(model: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "How many tokens are a lot?"}
    return {"model": model, "messages": [message], "max_tokens": 100, **more}


@contextmanager
def example_gateway(
    folder: Path, url: str, *options: str, source: Path = EXAMPLE
) -> Iterator[ExampleGateway]:
    """Run the gateway on a store, with options of its server."""
    settings = {**environment(), "ZAEL_URL": url, "PYTHONPATH": f"{ROOT}/src:{source}"}
    apply = [sys.executable, "-m", "zae_limiter.cli", "limits", "apply"]
    done = subprocess.run(
        [*apply, str(EXAMPLE / "limits.yaml")],
        env=settings,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    port, metrics_port, log = free_port(), free_port(), folder / "served.jsonl"
    with (
        model_server() as models,
        SyncRateLimiter(repository=SyncRepository.open(url=url)) as limiter,
    ):
        for entity_id in (*KEYS.values(), PROJECT, ORGANISATION):
            limiter.set_limits(entity_id, limits_of(entity_id), "chat")
        settings |= {
            "OPENAI_BASE_URL": f"{models.url}/v1",
            "OPENAI_API_KEY": "k",
            "GATEWAY_LOG": str(log),
            "METRICS_PORT": str(metrics_port),
        }
        command = ["uvicorn", "app:app", "--port", str(port), *options]
        with served(command, port, folder, settings):
            yield ExampleGateway(port, metrics_port, limiter, log, models)
