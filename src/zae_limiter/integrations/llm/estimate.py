"""Estimates of what a call will use, made before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .usage import TokenUsage

_INPUTS = ("messages", "input", "prompt", "system", "instructions", "tools", "functions")
# Pictures and files travel as base64 or by URL: their length says nothing about tokens.
_MEDIA = frozenset({"data", "file_data", "image_url", "url"})
_CAPS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_COPIES = ("n", "best_of")
_BYTES_PER_TOKEN = 4


def four_bytes_a_token(text: str) -> int:
    """Count a token for each 4 bytes of UTF-8, rounded up: about right for English prose, too many
    for most other languages."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def estimate_input(arguments: Mapping[str, Any], count_text: Callable[[str], int]) -> int:
    """Return the tokens of a prompt: of all texts in the call's arguments. A prompt that is given
    as numbers of tokens counts as many."""
    return sum(
        count_text(part) if isinstance(part, str) else 1
        for name in _INPUTS
        for part in _parts(arguments.get(name))
    )


def output_cap(arguments: Mapping[str, Any], otherwise: int) -> int:
    """Return the most tokens that an answer may have by the call's own arguments, all of its
    choices together; `otherwise` for each choice if the call names no cap."""
    caps = [value for value in map(arguments.get, _CAPS) if isinstance(value, int)]
    copies = [value for value in map(arguments.get, _COPIES) if isinstance(value, int)]
    return max(0, min(caps, default=otherwise)) * max(1, *copies, 1)


def estimate(
    arguments: Mapping[str, Any], count_input: Callable[[Mapping[str, Any]], int], otherwise: int
) -> TokenUsage:
    """Return the tokens to reserve for a call: its prompt, and the longest answer it allows."""
    return TokenUsage(count_input(arguments), output_cap(arguments, otherwise))


def _parts(value: Any, key: str = "") -> Iterator[str | int]:
    """Yield the texts and numbers in a value. SDKs accept their own models among messages."""
    if isinstance(value, str):
        if key not in _MEDIA:
            yield value
    elif isinstance(value, int):
        yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _parts(part, name)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _parts(part, key)
    elif hasattr(value, "model_dump"):
        yield from _parts(value.model_dump(exclude_none=True), key)
