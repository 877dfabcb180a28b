"""Both transports, so that one test body runs over each of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from zae_limiter.backends.dynamodb.wire.client import DynamoClient

BOTH = pytest.mark.parametrize("transport", ["wire", "botocore"])


def unhurried(client: DynamoClient) -> DynamoClient:
    """The client without a deadline: it tries as often as it would if no time passed."""
    client._backoff = replace(client._backoff, deadline_s=math.inf)
    return client
