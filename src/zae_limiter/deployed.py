"""Deployed stacks, found without importing what deploys them before it is needed."""

from __future__ import annotations

from .core.deployed import LimiterInfo


def find_deployed(region: str | None, endpoint_url: str | None) -> list[LimiterInfo]:
    """Return the limiters that are deployed in an AWS region, by name."""
    from .infra.aws import Aws
    from .infra.discovery import find_limiters

    aws = Aws(region, endpoint_url)
    try:
        return find_limiters(aws)
    finally:
        aws.close()
