"""The table of a stack, from the definition that `create_table` uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..backends.dynamodb.schema import TTL_ATTRIBUTE, get_table_definition
from .cloudformation import TABLE, Resource, ref
from .options import StackOptions

_SHAPE = ("AttributeDefinitions", "KeySchema")
_INDEXES = ("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
_INDEX_SHAPE = ("IndexName", "KeySchema", "Projection")


def table_shape() -> dict[str, Any]:
    """Return the keys and indexes of a new table."""
    return described_shape(get_table_definition("-"))


def described_shape(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys and indexes of a table that exists, as `DescribeTable` tells them.

    Local indexes and projections cannot be changed later: a template that has others would replace
    the table, and delete its data.
    """
    shape: dict[str, Any] = {name: description[name] for name in _SHAPE}
    for kind in _INDEXES:
        indexes = [
            {name: each[name] for name in _INDEX_SHAPE} for each in description.get(kind, ())
        ]
        if indexes:
            shape[kind] = sorted(indexes, key=lambda index: str(index["IndexName"]))
    return shape


def kept_shape(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys and indexes of a stack's table, in the order that its template has them.

    DynamoDB tells them in an order of its own. CloudFormation takes another order for a change, and
    a change of these for a new table.
    """
    properties = body["Resources"][TABLE]["Properties"]
    return {name: properties[name] for name in (*_SHAPE, *_INDEXES) if name in properties}


def table_resource(options: StackOptions, shape: Mapping[str, Any]) -> Resource:
    """Return the table. It goes with the stack, unless it is protected, and is never replaced."""
    recovery: dict[str, Any] = {"PointInTimeRecoveryEnabled": True}
    if options.pitr_recovery_days is not None:
        recovery["RecoveryPeriodInDays"] = options.pitr_recovery_days
    return {
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": "Delete",
        "UpdateReplacePolicy": "Retain",
        "Properties": {
            "TableName": ref("AWS::StackName"),
            "BillingMode": "PAY_PER_REQUEST",
            **shape,
            "StreamSpecification": {"StreamViewType": "NEW_AND_OLD_IMAGES"},
            "TimeToLiveSpecification": {"AttributeName": TTL_ATTRIBUTE, "Enabled": True},
            "PointInTimeRecoverySpecification": recovery,
            "DeletionProtectionEnabled": options.enable_deletion_protection,
            "Tags": [{"Key": "Application", "Value": "zae-limiter"}],
        },
    }
