"""Deployed stacks, as users are told of them."""

from __future__ import annotations

from dataclasses import dataclass

_HEALTHY = {"CREATE_COMPLETE", "UPDATE_COMPLETE"}


@dataclass(frozen=True, slots=True)
class LimiterInfo:
    """A limiter's stack as it was found in a region. Times are in ISO 8601."""

    stack_name: str
    user_name: str
    region: str
    stack_status: str
    creation_time: str
    last_updated_time: str | None = None
    version: str | None = None
    lambda_version: str | None = None
    schema_version: str | None = None
    stack_type: str | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether the last operation succeeded."""
        return self.stack_status in _HEALTHY

    @property
    def is_in_progress(self) -> bool:
        """Whether CloudFormation is at work."""
        return "IN_PROGRESS" in self.stack_status

    @property
    def is_failed(self) -> bool:
        """Whether the last operation failed, or was rolled back."""
        return "FAILED" in self.stack_status or "ROLLBACK" in self.stack_status


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a deployed stack, of its table and of its versions.

    `available`: the table answers. `aggregator_enabled`: a Lambda counts usage. The number of
    items and their size are DynamoDB's own, which are a few hours old.
    """

    available: bool
    latency_ms: float | None
    stack_status: str | None
    table_status: str | None
    aggregator_enabled: bool
    name: str
    region: str | None
    schema_version: str | None
    lambda_version: str | None
    client_version: str
    table_item_count: int | None
    table_size_bytes: int | None
    app_role_arn: str | None = None
    admin_role_arn: str | None = None
    readonly_role_arn: str | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the table answers, deploying was finished, and the stack's last operation
        succeeded, if it has a stack. The version record is what deploying writes last."""
        is_healthy = self.stack_status is None or self.stack_status in _HEALTHY
        return self.available and is_healthy and self.schema_version is not None
