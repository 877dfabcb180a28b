"""The tokens that a call of a model uses, whatever the API calls them."""

from __future__ import annotations

from typing import NamedTuple


class TokenUsage(NamedTuple):
    """Tokens of a call. `input_tokens` are all of the prompt; `cached_tokens` are those among them
    that the provider read from its cache."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """The tokens of the prompt and of the answer together."""
        return self.input_tokens + self.output_tokens
