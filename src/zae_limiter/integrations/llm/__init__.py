"""Limits around calls of language models: estimated before, settled with what the answer reports.

Read `usage` first; then `estimate`, `terms` and `pace`, which say what a call is charged and when
it has to wait; then `dialect` and `dialects`, which read the answers of each API; then `meter`, the
life of one call, `streams`, and `client`, which puts them around an SDK. `integrations.openai`,
`.anthropic` and `.litellm` stand on them, and import an SDK that only they need.
"""

from .estimate import four_bytes_a_token
from .pace import ProviderPace, ProviderPaused
from .terms import LlmTerms, requests_and_tokens
from .usage import TokenUsage

__all__ = [
    "LlmTerms",
    "ProviderPace",
    "ProviderPaused",
    "TokenUsage",
    "four_bytes_a_token",
    "requests_and_tokens",
]
