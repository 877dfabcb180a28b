"""This module is the steps of a builder that deploys a stack: one for each option of a stack."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

from .infra.options import StackOptions


class StackSteps:
    """A builder that takes one of these steps deploys the stack, or changes it to what they say,
    before it opens the table."""

    def __init__(self) -> None:
        self._stack_options: dict[str, Any] = {}

    def _deploying(self, **options: Any) -> Self:
        self._stack_options |= options
        return self

    def stack_options(self, opts: StackOptions) -> Self:
        """Choose all options of the stack at once. Deprecated: each option has a step."""
        warnings.warn(
            "stack_options() is deprecated: each option has a step of its own",
            DeprecationWarning,
            stacklevel=2,
        )
        return self._deploying(**{f.name: getattr(opts, f.name) for f in fields(opts)})

    def snapshot_windows(self, value: str) -> Self:
        """Choose the windows that usage is counted by, such as `hourly,daily`."""
        return self._deploying(snapshot_windows=value)

    def usage_retention_days(self, value: int) -> Self:
        """Choose how long usage is kept."""
        return self._deploying(usage_retention_days=value)

    def audit_retention_days(self, value: int) -> Self:
        """Choose how long audit events are kept."""
        return self._deploying(audit_retention_days=value)

    def enable_aggregator(self, value: bool = True) -> Self:
        """Choose whether the stack has the Lambda that counts usage."""
        return self._deploying(enable_aggregator=value)

    def pitr_recovery_days(self, value: int | None) -> Self:
        """Choose how far back the table can be restored."""
        return self._deploying(pitr_recovery_days=value)

    def log_retention_days(self, value: int) -> Self:
        """Choose how long the Lambda's logs are kept."""
        return self._deploying(log_retention_days=value)

    def lambda_timeout(self, value: int) -> Self:
        """Choose how many seconds the Lambda may take."""
        return self._deploying(lambda_timeout=value)

    def lambda_memory(self, value: int) -> Self:
        """Choose the memory of the Lambda, in megabytes."""
        return self._deploying(lambda_memory=value)

    def enable_alarms(self, value: bool = True) -> Self:
        """Choose whether the stack has alarms."""
        return self._deploying(enable_alarms=value)

    def alarm_sns_topic(self, value: str | None) -> Self:
        """Choose the SNS topic that alarms are sent to."""
        return self._deploying(alarm_sns_topic=value)

    def lambda_duration_threshold_pct(self, value: int) -> Self:
        """Choose the part of its timeout from which the Lambda is too slow."""
        return self._deploying(lambda_duration_threshold_pct=value)

    def permission_boundary(self, value: str | None) -> Self:
        """Choose the permission boundary of the roles."""
        return self._deploying(permission_boundary=value)

    def role_name_format(self, value: str | None) -> Self:
        """Choose how roles are named, with one `{}`."""
        return self._deploying(role_name_format=value)

    def policy_name_format(self, value: str | None) -> Self:
        """Choose how policies are named, with one `{}`."""
        return self._deploying(policy_name_format=value)

    def enable_audit_archival(self, value: bool = True) -> Self:
        """Choose whether expired audit events are archived."""
        return self._deploying(enable_audit_archival=value)

    def audit_archive_glacier_days(self, value: int) -> Self:
        """Choose after how many days the archive moves to Glacier."""
        return self._deploying(audit_archive_glacier_days=value)

    def enable_tracing(self, value: bool = True) -> Self:
        """Choose whether the Lambda is traced by X-Ray."""
        return self._deploying(enable_tracing=value)

    def create_iam_roles(self, value: bool = True) -> Self:
        """Choose whether the stack has roles for applications and people."""
        return self._deploying(create_iam_roles=value)

    def create_iam(self, value: bool = True) -> Self:
        """Choose whether the stack has roles and policies at all."""
        return self._deploying(create_iam=value)

    def aggregator_role_arn(self, value: str | None) -> Self:
        """Choose a role for the Lambda that exists already."""
        return self._deploying(aggregator_role_arn=value)

    def enable_deletion_protection(self, value: bool = True) -> Self:
        """Choose whether the table is protected from deletion."""
        return self._deploying(enable_deletion_protection=value)

    def enable_provisioner(self, value: bool = True) -> Self:
        """Choose whether the stack has the Lambda that applies declared limits."""
        return self._deploying(enable_provisioner=value)

    def tags(self, value: Mapping[str, str] | None) -> Self:
        """Choose tags for all resources of the stack."""
        return self._deploying(tags=value)
