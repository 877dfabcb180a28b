"""Roles and managed policies of a stack."""

from __future__ import annotations

from typing import Any

from .cloudformation import (
    ARCHIVE,
    DEAD_LETTERS,
    LOG_GROUP,
    ROLE,
    Resource,
    Resources,
    get_att,
    ref,
    sub,
    table_places,
)
from .options import StackOptions
from .policies import Document, Statement, aggregate_statements, policy_documents

MANAGED_POLICIES = {
    "acq": "AcquireOnlyPolicy",
    "full": "FullAccessPolicy",
    "read": "ReadOnlyPolicy",
    "ns-acq": "NamespaceAcquirePolicy",
    "ns-full": "NamespaceFullAccessPolicy",
    "ns-read": "NamespaceReadOnlyPolicy",
    "aggregate": "AggregatePolicy",
}
PURPOSES = {
    "acq": "Acquire in every namespace; change nothing else",
    "full": "Read and change everything in the table",
    "read": "Read everything in the table",
    "ns-acq": "Acquire in the namespace of the caller's tag zael_namespace_id",
    "ns-full": "Read and change everything in the namespace of the caller's tag",
    "ns-read": "Read the namespace of the caller's tag",
    "aggregate": "Run zae-limiter aggregate",
}
APPLICATION_ROLES = {
    "AppRole": ("app", "AcquireOnlyPolicy", "app"),
    "AdminRole": ("admin", "FullAccessPolicy", "admin"),
    "ReadOnlyRole": ("read", "ReadOnlyPolicy", "readonly"),
}


def iam_resources(options: StackOptions) -> Resources:
    """Return the policies, and the roles that were asked for; none without IAM."""
    if not options.create_iam:
        return {}
    documents = policy_documents(table_places())
    made = {
        MANAGED_POLICIES[component]: _managed_policy(options, component, document)
        for component, document in documents.items()
    }
    if options.create_iam_roles:
        made |= {name: _application_role(options, name) for name in APPLICATION_ROLES}
    if options.enable_aggregator and options.aggregator_role_arn is None:
        made[ROLE] = _aggregator_role(options)
    return made


def _managed_policy(options: StackOptions, component: str, document: Document) -> Resource:
    return {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {
            "ManagedPolicyName": _formatted(options.policy_name_format, component),
            "Description": PURPOSES[component],
            "PolicyDocument": document,
        },
    }


def _application_role(options: StackOptions, logical_id: str) -> Resource:
    component, policy, tag = APPLICATION_ROLES[logical_id]
    anybody = {"AWS": sub("arn:${AWS::Partition}:iam::${AWS::AccountId}:root")}
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            **_role(options, component, anybody),
            "ManagedPolicyArns": [ref(policy)],
            "Tags": [{"Key": "Role", "Value": tag}],
        },
    }


def _aggregator_role(options: StackOptions) -> Resource:
    policy = {
        "PolicyName": "aggregator",
        "PolicyDocument": {"Version": "2012-10-17", "Statement": _aggregator_statements(options)},
    }
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            **_role(options, "aggr", {"Service": "lambda.amazonaws.com"}),
            "Policies": [policy],
        },
    }


def _aggregator_statements(options: StackOptions) -> list[Statement]:
    statements = [
        *aggregate_statements(table_places()),
        _allow("Log", ["logs:CreateLogStream", "logs:PutLogEvents"], get_att(LOG_GROUP, "Arn")),
        _allow("Report", ["sqs:SendMessage"], get_att(DEAD_LETTERS, "Arn")),
        # Lambda asks for this one, and it takes no resource.
        _allow("List", ["dynamodb:ListStreams"], "*"),
    ]
    if options.deploys_archive:
        place = sub("${" + ARCHIVE + ".Arn}/audit/*")
        statements.append(_allow("Archive", ["s3:PutObject"], place))
    if options.enable_tracing:
        traces = ["xray:PutTelemetryRecords", "xray:PutTraceSegments"]
        statements.append(_allow("Trace", traces, "*"))
    return statements


def _allow(sid: str, actions: list[str], resource: Any) -> Statement:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}


def _role(options: StackOptions, component: str, principal: dict[str, Any]) -> dict[str, Any]:
    trust = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    boundary = options.permission_boundary
    return {
        "RoleName": _formatted(options.role_name_format, component),
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
        **({"PermissionsBoundary": _boundary(boundary)} if boundary else {}),
    }


def _boundary(named: str) -> Any:
    if named.startswith("arn:"):
        return named
    return sub("arn:${AWS::Partition}:iam::${AWS::AccountId}:policy/" + named)


def _formatted(pattern: str | None, component: str) -> dict[str, str]:
    return sub((pattern or "{}").replace("{}", "${AWS::StackName}-" + component))
