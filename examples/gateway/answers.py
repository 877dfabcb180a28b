"""Answers of the model, metered while they are passed on."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from fastapi.responses import StreamingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from starlette.types import Receive, Scope, Send

from zae_limiter import Lease, LeaseExpiredError
from zae_limiter.integrations.llm import TokenUsage, four_bytes_a_token

_LOG = os.environ.get("GATEWAY_LOG", "served.jsonl")


class MeteredAnswer:
    """The tokens that the answer to one call has used so far. Its end corrects the charge, which
    was an estimate, and writes a line of the log."""

    def __init__(self, lease: Lease, entity_id: str, estimated: TokenUsage) -> None:
        self._lease = lease
        self._entity_id = entity_id
        self._estimated = estimated
        self._text = ""
        self._reported: int | None = None
        self._has_ended = False

    def hear(self, part: ChatCompletion | ChatCompletionChunk) -> None:
        """Note a part of the answer."""
        if part.usage is not None:
            self._reported = part.usage.total_tokens
        for choice in part.choices:
            said = choice.message if hasattr(choice, "message") else choice.delta
            self._text += said.content or ""

    @property
    def used_tokens(self) -> int:
        """The tokens that the provider reported; before it does, the prompt and what was said."""
        if self._reported is not None:
            return self._reported
        return self._estimated.input_tokens + four_bytes_a_token(self._text)

    async def end(self) -> None:
        """Set the charge to what was used, and log it, once."""
        if self._has_ended:
            return
        self._has_ended = True
        with suppress(LeaseExpiredError):
            await self._lease.adjust(tpm=self.used_tokens - self._estimated.total_tokens)
        _log({"entity_id": self._entity_id, "calls": 1, "tokens": self.used_tokens})


class MeteredStream(StreamingResponse):
    """A stream that ends its answer whatever happens: also if its client leaves before the first
    chunk, and while a chunk is being sent."""

    def __init__(self, events: AsyncGenerator[bytes], answer: MeteredAnswer) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._events = events
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._answer.end()
            await self._events.aclose()


def sse(event: Any) -> bytes:
    """Return an event as its line in a stream."""
    return f"data: {event if isinstance(event, str) else event.model_dump_json()}\n\n".encode()


def _log(line: dict[str, Any]) -> None:
    """Append a line in one write, so that workers can share the file."""
    with open(_LOG, "ab", buffering=0) as log:
        log.write(json.dumps(line).encode() + b"\n")
