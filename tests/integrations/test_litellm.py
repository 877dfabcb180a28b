"""LiteLLM, its router and its proxy, as installed, against a server that speaks the APIs."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bench.peers.environment import python

from tests.docs.test_examples import ROOT
from tests.support.model_server import INPUT_TOKENS, OUTPUT_TOKENS, PARTS, TEXT, model_server
from tests.support.servers.processes import free_port
from tests.support.web_servers import served
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.integrations.llm import four_bytes_a_token
from zae_limiter.integrations.llm.sse import SseReader

PINS = ROOT / "tests" / "support" / "litellm-constraints.txt"
USED = [1, INPUT_TOKENS + OUTPUT_TOKENS]
PROMPT_TOKENS, MAX_TOKENS = 8, 100
CUT = [1, PROMPT_TOKENS + four_bytes_a_token(PARTS[0])]
NOTHING = [0, 0]
BOTH: dict[str, tuple[Any, list[int]]] = {
    "whole": (None, USED),
    "whole_anthropic": (None, USED),
    "whole_responses": (None, USED),
    "embedding": (None, [1, INPUT_TOKENS]),
    "streamed": (TEXT, USED),
    "streamed_with_usage": (USED[1], USED),
    "streamed_anthropic": (None, USED),
    "streamed_responses": (None, USED),
    "closed": (None, CUT),
    "broken": ("broken", CUT),
    "failing": (["InternalServerError", "BadRequestError", "InternalServerError"], NOTHING),
    "retried": (2, USED),
    "stuck": ("timeout", [1, PROMPT_TOKENS + MAX_TOKENS]),
    "paused": ([True, 1], NOTHING),
    "refused_first": (["RateLimitExceeded", 0], NOTHING),
    "another_method": ("image_generation is not charged", NOTHING),
    "routed": ("plain", USED),
}
CASES = {f"{name}-{driver}": case for name, case in BOTH.items() for driver in ("async", "sync")}
CASES["cancelled-async"] = ("timeout", CUT)
SETTINGS = {"PYTHONPATH": f"{ROOT}/src:{ROOT}", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@pytest.fixture(scope="module")
def calls() -> Any:
    """The outcome of each case and its charge, found in the environment that has LiteLLM."""
    done = subprocess.run(
        [python(PINS), "-m", "tests.integrations.litellm_calls"],
        cwd=ROOT,
        env={**os.environ, **SETTINGS},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_litellm_calls_are_charged_for_what_was_served(calls: Any) -> None:
    assert calls == {name: list(case) for name, case in CASES.items()}


@pytest.mark.slow
def test_examples_for_litellm_in_the_documentation_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "llm.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```py\n(.*?)^```$", text, re.M | re.S)
    assert len(examples) == 2
    for number, example in enumerate(examples):
        body = textwrap.indent(example, "    ")
        program = f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())\n"
        (tmp_path / f"example_{number}.py").write_text(program)
    with model_server() as models:
        about = {"OPENAI_BASE_URL": f"{models.url}/v1", "OPENAI_API_KEY": "key"}
        for path in sorted(tmp_path.glob("example_*.py")):
            done = subprocess.run(
                [python(PINS), str(path)],
                env={**os.environ, **SETTINGS, **about},
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr[-2000:]
    assert models.calls["gpt-4o"] == 2


class Proxy:
    """A proxy that runs, and the store that it charges."""

    def __init__(self, port: int, key: str, limiter: SyncRateLimiter) -> None:
        self.port = port
        self.key = key
        self.limiter = limiter

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, dict(refused.headers), refused.read()

    def charged(self, model: str) -> list[int]:
        left = self.limiter.available("key-1", model)
        return [1_000 - left["rpm"], 1_000_000 - left["tpm"]]


def config(url: str, key: str) -> dict[str, Any]:
    def deployment(name: str, model: str, base: str) -> dict[str, Any]:
        about = {"model": model, "api_base": base, "api_key": "k", "max_retries": 0}
        return {"model_name": name, "litellm_params": about}

    names = {path: path.partition("-")[0] for path in ROUTES}
    return {
        "model_list": [
            deployment(name, f"anthropic/{model.removeprefix('claude')}", url)
            if model == "claudeplain"
            else deployment(name, f"openai/{model}", f"{url}/v1")
            for name, model in names.items()
        ],
        "litellm_settings": {"callbacks": "tests.integrations.litellm_proxy_limits.hook"},
        "router_settings": {"num_retries": 0},
        "general_settings": {"master_key": key},
    }


CHAT = {"messages": [{"role": "user", "content": "How many tokens are a lot?"}]}
CAPPED = {**CHAT, "max_tokens": MAX_TOKENS}
# Each case has a model of its own, whose name begins with its behaviour, and so its own bucket.
ROUTES: dict[str, tuple[str, dict[str, Any], int, list[int]]] = {
    "plain-whole": ("/v1/chat/completions", CAPPED, 200, USED),
    "plain-stream": ("/v1/chat/completions", {**CAPPED, "stream": True}, 200, USED),
    "plain-embedding": ("/v1/embeddings", {"input": ["a text"]}, 200, [1, INPUT_TOKENS]),
    "plain-response": ("/v1/responses", {"input": "a text"}, 200, USED),
    "plain-response-stream": ("/v1/responses", {"input": "a", "stream": True}, 200, USED),
    "plain-large": ("/v1/chat/completions", {**CHAT, "max_tokens": 2_000_000}, 413, NOTHING),
    "claudeplain-whole": ("/v1/messages", CAPPED, 200, USED),
    "claudeplain-stream": ("/v1/messages", {**CAPPED, "stream": True}, 200, USED),
    "claudeplain-chat": ("/v1/chat/completions", {**CAPPED, "stream": True}, 200, USED),
    "silent-whole": (
        "/v1/chat/completions",
        CAPPED,
        200,
        [1, PROMPT_TOKENS + four_bytes_a_token(TEXT)],
    ),
    "failing-whole": ("/v1/chat/completions", CAPPED, 500, NOTHING),
    "refused-whole": ("/v1/chat/completions", CAPPED, 400, NOTHING),
    "busy-whole": ("/v1/chat/completions", CAPPED, 429, NOTHING),
    "slow-left": ("/v1/chat/completions", {**CAPPED, "stream": True}, 200, CUT),
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder, port, key = tmp_path_factory.mktemp("proxy"), free_port(), f"sk-{secrets.token_hex(32)}"
    url = f"sqlite:///{folder}/limits.db"
    with model_server() as models:
        (folder / "config.yaml").write_text(json.dumps(config(models.url, key)))
        command = ["litellm.proxy.proxy_cli", "--config", "config.yaml", "--telemetry", "False"]
        address = ["--host", "127.0.0.1", "--port", str(port)]
        settings = {**SETTINGS, "ZAEL_URL": url}
        with (
            served([*command, *address], port, folder, settings, interpreter=python(PINS)),
            SyncRateLimiter(repository=SyncRepository.open(url=url)) as limiter,
        ):
            found = Proxy(port, key, limiter)
            found.post("/v1/embeddings", {"model": "plain-first", "input": "opens the store"})
            yield found


@pytest.mark.slow
@pytest.mark.parametrize("model", [name for name in ROUTES if name != "slow-left"])
def test_the_litellm_proxy_charges_what_was_served(proxy: Proxy, model: str) -> None:
    path, body, status, charged = ROUTES[model]
    found, headers, _ = proxy.post(path, {**body, "model": model})
    assert (found, proxy.charged(model)) == (status, charged)
    assert "RateLimit" in {name.title().replace("Ratelimit", "RateLimit") for name in headers}


@pytest.mark.slow
def test_the_litellm_proxy_pauses_a_provider_that_says_429(proxy: Proxy) -> None:
    path, body, _, _ = ROUTES["busy-whole"]
    asked = {**body, "model": "busy-whole"}
    proxy.post(path, asked)
    status, headers, answer = proxy.post(path, asked)
    fields = {name.lower(): value for name, value in headers.items()}
    assert (status, 20 < int(fields["retry-after"]) <= 30) == (503, True)
    assert b"temporary-reduced-capacity" in answer


@pytest.mark.slow
def test_a_client_that_leaves_the_litellm_proxy_pays_for_what_was_streamed(proxy: Proxy) -> None:
    path, body, _, charged = ROUTES["slow-left"]
    text = json.dumps({**body, "model": "slow-left"}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(text)}\r\n"
    fields = f"content-type: application/json\r\nauthorization: Bearer {proxy.key}\r\n\r\n"
    with closing(socket.create_connection(("127.0.0.1", proxy.port), timeout=30)) as client:
        client.sendall((head + fields).encode() + text)
        seen = b""
        while PARTS[0].encode() not in seen:
            more = client.recv(65_536)
            assert more, seen
            seen += more
    deadline_s = time.monotonic() + 30
    while proxy.charged("slow-left") != charged and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert proxy.charged("slow-left") == charged


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_read_from_bytes_wherever_chunks_end(size: int) -> None:
    text = b'event: a\r\ndata: {"type": "a"}\r\n\r\n: note\ndata:{"type": "\xc3\xa9"}\n\n'
    text += b"data: [DONE]\ndata: not json\ndata: 5\n\n"
    reader = SseReader()
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert [event for chunk in chunks for event in reader.feed(chunk)] == [
        {"type": "a"},
        {"type": "\u00e9"},
    ]


def test_a_line_that_never_ends_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zae_limiter.integrations.llm.sse._MAX_LINE", 100)
    reader = SseReader()
    for _ in range(100):
        assert reader.feed(b"x" * 50) == []
    assert reader.feed('\ndata: {"type": "b"}\n') == [{"type": "b"}]


def test_the_pins_of_litellm_are_exact() -> None:
    lines = Path(PINS).read_text(encoding="utf-8").split()
    assert all(line.count("==") == 1 for line in lines)
    assert any(line.startswith("litellm==") for line in lines)
