"""Options of a stack that the existing package made: its template has them as parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .options import StackOptions

_SWITCHES = {
    "EnableAggregator": "enable_aggregator",
    "EnableAlarms": "enable_alarms",
    "EnableProvisioner": "enable_provisioner",
    "EnableAuditArchival": "enable_audit_archival",
    "EnableTracing": "enable_tracing",
    "EnableIAMRoles": "create_iam_roles",
    "EnableIAM": "create_iam",
    "EnableDeletionProtection": "enable_deletion_protection",
}
_NUMBERS = {
    "SnapshotRetentionDays": "usage_retention_days",
    "LambdaMemorySize": "lambda_memory",
    "LambdaTimeout": "lambda_timeout",
    "PITRRecoveryPeriodDays": "pitr_recovery_days",
    "LogRetentionDays": "log_retention_days",
    "AuditArchiveGlacierTransitionDays": "audit_archive_glacier_days",
}
_TEXTS = {
    "SnapshotWindows": "snapshot_windows",
    "AlarmSNSTopicArn": "alarm_sns_topic",
    "PermissionBoundary": "permission_boundary",
    "AggregatorRoleArn": "aggregator_role_arn",
}
_FORMATS = {
    "AggregatorRoleName": ("role_name_format", "aggr"),
    "AcquireOnlyPolicyName": ("policy_name_format", "acq"),
}
_THRESHOLD_MS = "LambdaDurationThreshold"


def options_from_parameters(stack_name: str, parameters: Mapping[str, str]) -> StackOptions:
    """Return the options that the parameters of a stack mean; empty ones are left out."""
    given = {name: value for name, value in parameters.items() if value}
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name in _SWITCHES:
            options[_SWITCHES[name]] = value == "true"
        elif name in _NUMBERS:
            options[_NUMBERS[name]] = int(value)
        elif name in _TEXTS:
            options[_TEXTS[name]] = value
        elif name in _FORMATS:
            field, component = _FORMATS[name]
            options[field] = value.replace(f"{stack_name}-{component}", "{}")
    if _THRESHOLD_MS in given:
        options["lambda_duration_threshold_pct"] = _threshold_pct(given)
    return StackOptions(**options)


def _threshold_pct(given: Mapping[str, str]) -> int:
    """Return the alarm's threshold as a part of the timeout."""
    timeout_s = int(given.get("LambdaTimeout", StackOptions().lambda_timeout))
    return min(100, max(1, round(int(given[_THRESHOLD_MS]) / (10 * timeout_s))))
