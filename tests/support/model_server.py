"""A local server that speaks the APIs of OpenAI and Anthropic. The model's name is its behaviour.

plain        answers with its usage            silent       answers without usage
busy-once    429, then answers                 busy         429 to every call
failing      500 to every call                 broken       leaves in the middle of a stream
slow         never gets past its first part    refused      400
stuck        never answers at all              steady       streams many parts, without haste
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PARTS = ["One token is ", "not a lot; ", "but many are."]
TEXT = "".join(PARTS)
INPUT_TOKENS, OUTPUT_TOKENS, CACHED_TOKENS = 21, 13, 5
RETRY_AFTER_S = 30
_GIVE_UP_S = 20.0
_STEADY_PARTS, _STEADY_PAUSE_S = 50, 0.01
_ERRORS = {"busy": 429, "failing": 500, "refused": 400}
_ENDLESS = ("slow", "stuck")


class ModelServer(ThreadingHTTPServer):
    """The server, and what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls: Counter[str] = Counter()
        self.asked: list[dict[str, Any]] = []
        self.is_over = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def note(self, body: dict[str, Any]) -> int:
        """Note a request, and return how many of its model there have been."""
        with self._lock:
            self.asked.append(body)
            self.calls[body["model"]] += 1
            return self.calls[body["model"]]


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Run a server for the length of a block."""
    server = ModelServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Left(Exception):
    """The behaviour of a server that breaks off."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model, count = body["model"], self.server.note(body)
        if model == "stuck":
            self._wait()
        status = _ERRORS.get(model, 200)
        if model == "busy-once" and count == 1:
            self._answer(429, {"error": {"message": "busy"}}, {"retry-after-ms": "20"})
        elif status != 200:
            more = {"retry-after": str(RETRY_AFTER_S)} if status == 429 else {}
            self._answer(status, {"error": {"message": model}}, more)
        elif body.get("stream"):
            self._stream(_EVENTS[self.path](body))
        else:
            self._answer(200, _WHOLE[self.path](body), {})

    def _wait(self) -> None:
        """Wait until the client leaves, which it does, or the test is over."""
        self.connection.settimeout(0.01)
        deadline_s = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < deadline_s and not self.server.is_over.is_set():
            try:
                if not self.connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.close_connection = True

    def _answer(self, status: int, body: Any, headers: dict[str, str]) -> None:
        text = json.dumps(body).encode()
        try:
            self.send_response(status)
            for name, value in {**headers, "content-type": "application/json"}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            self.close_connection = True

    def _stream(self, events: Iterator[dict[str, Any] | str]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                if event == "wait":
                    self._wait()
                    return
                self._chunk(_sse(event))
            self._chunk(b"")
        except (OSError, _Left):
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _sse(event: dict[str, Any] | str) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    kind = f"event: {event['type']}\n" if "type" in event else ""
    return f"{kind}data: {json.dumps(event)}\n\n".encode()


def _parts(model: str) -> Iterator[str]:
    """The parts of the text, and what the model does instead of the second."""
    if model == "steady":
        for _ in range(_STEADY_PARTS):
            time.sleep(_STEADY_PAUSE_S)
            yield PARTS[0]
    for number, part in enumerate(PARTS):
        if number == 1 and model == "broken":
            raise _Left
        if number == 1 and model in _ENDLESS:
            yield "wait"
        yield part


def _chat_usage() -> dict[str, Any]:
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    }


def _chat(body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": TEXT}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
    usage = {} if body["model"] == "silent" else {"usage": _chat_usage()}
    return {**answer, "choices": [choice], **usage}


def _chat_events(body: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    for part in _parts(body["model"]):
        if part == "wait":
            yield part
            continue
        delta = {"index": 0, "delta": {"content": part}, "finish_reason": None}
        yield {**head, "choices": [delta]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    if wants_usage and body["model"] != "silent":
        yield {**head, "choices": [], "usage": _chat_usage()}
    yield "[DONE]"


def _response(body: dict[str, Any], *, has_text: bool = True) -> dict[str, Any]:
    content = [{"type": "output_text", "text": TEXT, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    usage = {
        "input_tokens": INPUT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "completed",
        "output": [{**message, "content": content}] if has_text else [],
        "usage": None if body["model"] == "silent" or not has_text else usage,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


def _response_events(body: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    number = 0
    yield {
        "type": "response.created",
        "sequence_number": number,
        "response": _response(body, has_text=False),
    }
    place = {"item_id": "m", "output_index": 0, "content_index": 0, "logprobs": []}
    for part in _parts(body["model"]):
        number += 1
        if part == "wait":
            yield part
            continue
        kind = "response.output_text.delta"
        yield {"type": kind, "sequence_number": number, "delta": part, **place}
    yield {
        "type": "response.completed",
        "sequence_number": number + 1,
        "response": _response(body),
    }


def _embedding(body: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": INPUT_TOKENS, "total_tokens": INPUT_TOKENS}
    vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
    return {"object": "list", "model": body["model"], "data": [vector], "usage": usage}


def _message(body: dict[str, Any], *, is_begun: bool = False) -> dict[str, Any]:
    usage = {
        "input_tokens": INPUT_TOKENS - CACHED_TOKENS,
        "cache_read_input_tokens": CACHED_TOKENS,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1 if is_begun else OUTPUT_TOKENS,
    }
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [] if is_begun else [{"type": "text", "text": TEXT}],
        "stop_reason": None if is_begun else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def _message_events(body: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    yield {"type": "message_start", "message": _message(body, is_begun=True)}
    block = {"type": "text", "text": ""}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for part in _parts(body["model"]):
        if part == "wait":
            yield part
            continue
        delta = {"type": "text_delta", "text": part}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": OUTPUT_TOKENS}}
    yield {"type": "message_stop"}


_WHOLE = {
    "/v1/chat/completions": _chat,
    "/v1/responses": _response,
    "/v1/embeddings": _embedding,
    "/v1/messages": _message,
}
_EVENTS = {
    "/v1/chat/completions": _chat_events,
    "/v1/responses": _response_events,
    "/v1/messages": _message_events,
}
