"""Both transports run the same test bodies."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from zae_limiter.backends.dynamodb.wire.client import DynamoClient

BOTH = pytest.mark.parametrize("transport", ["wire", "botocore"])


def unhurried(client: DynamoClient) -> DynamoClient:
    """Take a client's deadline away: it retries as often as it would if no time passed."""
    client._backoff = replace(client._backoff, deadline_s=math.inf)
    return client
