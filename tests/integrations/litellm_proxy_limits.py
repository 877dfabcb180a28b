"""The hook of the LiteLLM proxy under test: `litellm_settings: {callbacks: ....hook}`."""

from __future__ import annotations

import os

from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.integrations.litellm_proxy import LiteLlmProxyHook

REQUESTS, TOKENS = 1_000, 1_000_000


async def open_limiter() -> RateLimiter:
    limiter = RateLimiter(repository=await Repository.open(url=os.environ["ZAEL_URL"]))
    # They gain a token in many years, so that what is missing is what was charged.
    await limiter.set_system_defaults(
        [Limit("rpm", REQUESTS, 1, 10**9), Limit("tpm", TOKENS, 1, 10**9)]
    )
    return limiter


hook = LiteLlmProxyHook(open_limiter, key=lambda auth: "key-1")
