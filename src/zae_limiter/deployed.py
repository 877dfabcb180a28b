"""Deployed stacks, found without importing what deploys them before it is needed."""

from __future__ import annotations

from .core.deployed import LimiterInfo
from .infra.options import StackOptions


def find_deployed(region: str | None, endpoint_url: str | None) -> list[LimiterInfo]:
    """Return the limiters that are deployed in an AWS region, by name."""
    from .infra.aws import Aws
    from .infra.discovery import find_limiters

    aws = Aws(region, endpoint_url)
    try:
        return find_limiters(aws)
    finally:
        aws.close()


def deploy_stack(
    stack: str, region: str | None, endpoint_url: str | None, options: StackOptions
) -> None:
    """Create a stack, or change it to what the options say. May take minutes."""
    from .infra.sync_stack_manager import SyncStackManager

    with SyncStackManager(stack, region, endpoint_url) as manager:
        manager.deploy(options)


def update_lambda(stack: str, region: str | None, endpoint_url: str | None) -> None:
    """Upload this version's code to the Lambda of a stack."""
    from .infra.sync_stack_manager import SyncStackManager

    with SyncStackManager(stack, region, endpoint_url) as manager:
        manager.deploy_lambda_code()
