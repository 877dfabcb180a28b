"""Outputs of a stack: names and ARNs of its parts, exported under the stack's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .cloudformation import (
    ARCHIVE,
    DEAD_LETTERS,
    FUNCTION,
    PROVISIONER,
    TABLE,
    Resources,
    get_att,
    ref,
    stack_named,
)
from .iam_resources import APPLICATION_ROLES, MANAGED_POLICIES, boundary_arn
from .options import StackOptions

_ALARM_EXPORTS = {
    "AggregatorDLQAlarm": "DLQAlarmName",
    "DynamoDBReadThrottleAlarm": "ReadThrottleAlarmName",
    "DynamoDBWriteThrottleAlarm": "WriteThrottleAlarmName",
}

# Stacks of declared limits import it.
PROVISIONER_ARN = "ProvisionerArn"


class _Output(NamedTuple):
    name: str
    logical_id: str
    value: Any
    export: str = ""


def stack_outputs(options: StackOptions, resources: Resources) -> dict[str, Any]:
    """Return the outputs of the resources that the stack has, and of names that were prescribed.

    An export stays for good: CloudFormation refuses to remove one that another stack imports.
    """
    made = [each for each in _all_outputs(resources) if each.logical_id in resources]
    return {
        each.name: {
            "Value": each.value,
            "Export": {"Name": stack_named(each.export or each.name)},
        }
        for each in (*made, *_prescribed(options))
    }


def _prescribed(options: StackOptions) -> Iterator[_Output]:
    if options.permission_boundary:
        yield _Output("PermissionBoundaryArn", "", boundary_arn(options.permission_boundary))
    if options.role_name_format:
        yield _Output("RoleNameFormat", "", options.role_name_format)


def _all_outputs(resources: Resources) -> list[_Output]:
    return [
        _Output("TableName", TABLE, ref(TABLE)),
        _Output("TableArn", TABLE, get_att(TABLE, "Arn")),
        _Output("StreamArn", TABLE, get_att(TABLE, "StreamArn")),
        _Output("AggregatorFunctionArn", FUNCTION, get_att(FUNCTION, "Arn"), "AggregatorArn"),
        _Output("AggregatorFunctionName", FUNCTION, ref(FUNCTION), "AggregatorName"),
        _Output("AggregatorDLQUrl", DEAD_LETTERS, ref(DEAD_LETTERS), "DLQUrl"),
        _Output("AggregatorDLQArn", DEAD_LETTERS, get_att(DEAD_LETTERS, "Arn"), "DLQArn"),
        _Output(
            "ProvisionerFunctionArn", PROVISIONER, get_att(PROVISIONER, "Arn"), PROVISIONER_ARN
        ),
        _Output("ProvisionerFunctionName", PROVISIONER, ref(PROVISIONER), "ProvisionerName"),
        _Output("AuditArchiveBucketName", ARCHIVE, ref(ARCHIVE)),
        _Output("AuditArchiveBucketArn", ARCHIVE, get_att(ARCHIVE, "Arn")),
        _Output("CodeBucketName", ARCHIVE, ref(ARCHIVE)),
        *(_Output(f"{name}Arn", name, ref(name)) for name in MANAGED_POLICIES.values()),
        *(_Output(f"{name}Arn", name, get_att(name, "Arn")) for name in APPLICATION_ROLES),
        *(_Output(f"{name}Name", name, ref(name)) for name in APPLICATION_ROLES),
        *(
            _Output(f"{name}Name", name, ref(name), _ALARM_EXPORTS.get(name, ""))
            for name, resource in resources.items()
            if resource["Type"] == "AWS::CloudWatch::Alarm"
        ),
    ]
