"""Stacks of limiters are found by their tags."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..core.deployed import LimiterInfo
from ..core.exceptions import InfrastructureError
from .aws import Aws, aws_reason
from .tags import LAMBDA_VERSION, NAME, SCHEMA_VERSION, TYPE, VERSION, is_limiter, read_tags

_GONE = "DELETE_COMPLETE"


def find_limiters(aws: Aws) -> list[LimiterInfo]:
    """Return the limiters of a region, by name. Nothing is created or changed."""
    from botocore.exceptions import BotoCoreError, ClientError

    client = aws["cloudformation"]
    region = client.meta.region_name
    try:
        pages = client.get_paginator("describe_stacks").paginate()
        stacks = [stack for page in pages for stack in page["Stacks"]]
    except (BotoCoreError, ClientError) as error:
        said = f"Cannot list the stacks of {region}: {aws_reason(error)}"
        raise InfrastructureError(said) from error
    found = [_info(stack, region) for stack in stacks if _is_ours(stack)]
    return sorted(found, key=lambda info: info.user_name)


def _is_ours(stack: Mapping[str, Any]) -> bool:
    return stack["StackStatus"] != _GONE and is_limiter(read_tags(stack.get("Tags", ())))


def _info(stack: Mapping[str, Any], region: str) -> LimiterInfo:
    tags = read_tags(stack["Tags"])
    return LimiterInfo(
        stack["StackName"],
        tags.get(NAME, stack["StackName"]),
        region,
        stack["StackStatus"],
        _iso(stack["CreationTime"]) or "",
        _iso(stack.get("LastUpdatedTime")),
        tags.get(VERSION),
        tags.get(LAMBDA_VERSION),
        tags.get(SCHEMA_VERSION),
        tags.get(TYPE),
    )


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
