"""Short forms of CloudFormation's functions and of the logical ids that parts share."""

from __future__ import annotations

from typing import Any

from .policies import Places

Resource = dict[str, Any]
Resources = dict[str, Resource]

TABLE = "RateLimitsTable"
FUNCTION = "AggregatorFunction"
MAPPING = "AggregatorEventSourceMapping"
ROLE = "AggregatorRole"
DEAD_LETTERS = "AggregatorDLQ"
LOG_GROUP = "AggregatorLogGroup"
ARCHIVE = "AuditArchiveBucket"
PROVISIONER = "ProvisionerFunction"
PROVISIONER_ROLE = "ProvisionerRole"
PROVISIONER_LOG = "ProvisionerLogGroup"


def ref(name: str) -> dict[str, str]:
    """Return the name of a resource, or a pseudo parameter."""
    return {"Ref": name}


def sub(text: str) -> dict[str, str]:
    """Return a text in which `${...}` is replaced."""
    return {"Fn::Sub": text}


def get_att(name: str, attribute: str) -> dict[str, list[str]]:
    """Return an attribute of a resource."""
    return {"Fn::GetAtt": [name, attribute]}


def stack_named(suffix: str) -> dict[str, str]:
    """Return a name that begins with the stack's."""
    return sub("${AWS::StackName}-" + suffix)


def stack_places() -> Places:
    """Return the places of the stack's own parts."""
    return Places(
        get_att(TABLE, "Arn"),
        sub("${" + TABLE + ".Arn}/index/*"),
        # A table that is restored, or whose stream was off, has a new stream.
        sub("${" + TABLE + ".Arn}/stream/*"),
        get_att(LOG_GROUP, "Arn"),
        get_att(DEAD_LETTERS, "Arn"),
        sub("${" + ARCHIVE + ".Arn}/audit/*"),
        get_att(PROVISIONER_LOG, "Arn"),
    )
