"""The dialects: chat completions, responses and embeddings of OpenAI, messages of Anthropic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .dialect import Heard, number_at, text_at, value_at, wants_stream
from .usage import TokenUsage


class ChatDialect:
    """Chat completions and completions. A stream reports its usage in a last event of its own, and
    only if it is asked to."""

    def asked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask a stream for its usage."""
        if not wants_stream(arguments) or _wants_usage(arguments):
            return arguments
        options = arguments.get("stream_options")
        given = options if isinstance(options, Mapping) else {}
        return {**arguments, "stream_options": {**given, "include_usage": True}}

    def whole(self, answer: Any) -> Heard:
        """Read a completion."""
        texts = [
            text for choice in value_at(answer, "choices") or () for text in _chat_texts(choice)
        ]
        usage = _token_usage(value_at(answer, "usage"))
        return Heard("".join(texts), usage, is_final=usage is not None)

    def event(self, event: Any, arguments: Mapping[str, Any]) -> Heard:
        """Read one chunk."""
        heard = self.whole(event)
        is_bare = not any(map(_says_something, value_at(event, "choices") or ()))
        return heard._replace(
            is_ours=heard.is_final and is_bare and not _wants_usage(arguments),
        )


def _wants_usage(arguments: Mapping[str, Any]) -> bool:
    options = arguments.get("stream_options")
    return isinstance(options, Mapping) and "include_usage" in options


def _says_something(choice: Any) -> bool:
    """Tell whether a choice has more than its number: LiteLLM reports usage beside an empty one."""
    told = (value_at(choice, "finish_reason"), value_at(choice, "delta", "role"))
    return any(told) or any(_chat_texts(choice))


def _chat_texts(choice: Any) -> list[str]:
    """The texts of a choice, whether it is whole or a part of a stream."""
    said = value_at(choice, "message") or value_at(choice, "delta")
    texts = [text_at(said, name) for name in ("content", "refusal", "reasoning_content")]
    called = [value_at(call, "function") for call in value_at(said, "tool_calls") or ()]
    for function in (*called, value_at(said, "function_call")):
        texts += [text_at(function, name) for name in ("name", "arguments")]
    return [*texts, text_at(choice, "text")]


def _token_usage(usage: Any) -> TokenUsage | None:
    """Return the usage of an answer, by the names of either API. A prompt is never without tokens:
    some servers report zeros, or nothing that can be read, and the call would be free."""
    prompt = number_at(usage, "prompt_tokens") or number_at(usage, "input_tokens")
    said = number_at(usage, "completion_tokens") or number_at(usage, "output_tokens")
    if not prompt and not said:
        return None
    details = value_at(usage, "prompt_tokens_details") or value_at(usage, "input_tokens_details")
    return TokenUsage(prompt, said, min(prompt, number_at(details, "cached_tokens")))


class EmbeddingsDialect(ChatDialect):
    """Embeddings. They have no texts, and their usage is of the prompt alone."""

    def asked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask for nothing more."""
        return arguments


class ResponsesDialect:
    """Responses. Their streams end with an event that holds the whole response."""

    def asked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask for nothing more."""
        return arguments

    def whole(self, answer: Any) -> Heard:
        """Read a response."""
        usage = _token_usage(value_at(answer, "usage"))
        texts = [text for item in value_at(answer, "output") or () for text in _item_texts(item)]
        return Heard("".join(texts), usage, is_final=usage is not None)

    def event(self, event: Any, arguments: Mapping[str, Any]) -> Heard:
        """Read one event. Those that end in `.delta` hold text, the last ones the response."""
        if text_at(event, "type").endswith(".delta"):
            return Heard(text_at(event, "delta"))
        # Its text has been counted as it came.
        return self.whole(value_at(event, "response"))._replace(text="")


def _item_texts(item: Any) -> list[str]:
    """The texts of an item: what it says, its reasoning, and the tool that it calls."""
    parts = [*(value_at(item, "content") or ()), *(value_at(item, "summary") or ())]
    said = [text_at(part, "text") for part in parts]
    return [*said, *(text_at(item, name) for name in ("name", "arguments", "input"))]


class MessagesDialect:
    """Messages of Anthropic. A stream begins with the usage of the prompt, and ends with that of
    the answer."""

    def asked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask for nothing more."""
        return arguments

    def whole(self, answer: Any) -> Heard:
        """Read a message, or what has come of one: without a reason to stop it goes on."""
        texts = [text for part in value_at(answer, "content") or () for text in _block_texts(part)]
        usage = _message_usage(value_at(answer, "usage"))
        has_stopped = value_at(answer, "stop_reason") is not None
        return Heard("".join(texts), usage, is_final=has_stopped and usage is not None)

    def event(self, event: Any, arguments: Mapping[str, Any]) -> Heard:
        """Read one event."""
        kind = text_at(event, "type")
        if kind == "message_start":
            return self.whole(value_at(event, "message"))
        if kind == "message_delta":
            usage = _message_usage(value_at(event, "usage"))
            return Heard(usage=usage, is_final=usage is not None)
        names = ("text", "thinking", "partial_json") if kind == "content_block_delta" else ()
        return Heard("".join(text_at(event, "delta", name) for name in names))


def _block_texts(block: Any) -> list[str]:
    """The texts of a block: what it says, its reasoning, or the tool that it calls."""
    asked = value_at(block, "input")
    written = json.dumps(asked, default=str) if asked else ""
    return [*(text_at(block, name) for name in ("text", "thinking", "name")), written]


def _message_usage(usage: Any) -> TokenUsage | None:
    if usage is None:
        return None
    cached = number_at(usage, "cache_read_input_tokens")
    prompt = number_at(usage, "input_tokens") + number_at(usage, "cache_creation_input_tokens")
    return TokenUsage(prompt + cached, number_at(usage, "output_tokens"), cached)
