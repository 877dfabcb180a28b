"""Both transports run the same test bodies."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from zae_limiter.backends.dynamodb.wire.client import DynamoClient

# Far above what importing aiobotocore takes on a busy machine: only a hang reaches it.
_HANG_S = 60.0

BOTH = pytest.mark.parametrize("transport", ["wire", "botocore"])


def unhurried(client: DynamoClient) -> DynamoClient:
    """Take a client's deadlines away: it retries as often as it would if no time passed."""
    client._backoff = replace(client._backoff, deadline_s=math.inf)
    client._total_s = _HANG_S
    return client
