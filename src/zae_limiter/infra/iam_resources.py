"""Roles and managed policies of a stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cloudformation import (
    PROVISIONER_ROLE,
    ROLE,
    Resource,
    Resources,
    ref,
    stack_places,
    sub,
)
from .options import StackOptions
from .policies import Document, aggregator_document, policy_documents, provisioner_document

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
_DESCRIPTIONS = {name: PURPOSES[component] for component, name in MANAGED_POLICIES.items()}
APPLICATION_ROLES = {
    "AppRole": ("app", "AcquireOnlyPolicy", "app"),
    "AdminRole": ("admin", "FullAccessPolicy", "admin"),
    "ReadOnlyRole": ("read", "ReadOnlyPolicy", "readonly"),
}


def kept_descriptions(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the descriptions of policies that exist, by logical id.

    A description cannot be changed: CloudFormation would create another policy of the same name, in
    vain.
    """
    found = {name: body["Resources"].get(name) for name in MANAGED_POLICIES.values()}
    return {
        name: policy["Properties"]["Description"]
        for name, policy in found.items()
        if policy is not None and "Description" in policy["Properties"]
    }


def iam_resources(options: StackOptions, descriptions: Mapping[str, str]) -> Resources:
    """Return the policies, and the roles that were asked for; none without IAM. `descriptions`:
    those of policies that exist."""
    if not options.create_iam:
        return {}
    documents = policy_documents(stack_places())
    told = {**_DESCRIPTIONS, **descriptions}
    made = {
        name: _managed_policy(options, component, documents[component], told[name])
        for component, name in MANAGED_POLICIES.items()
    }
    if options.create_iam_roles:
        made |= {name: _application_role(options, name) for name in APPLICATION_ROLES}
    if options.enable_aggregator and options.aggregator_role_arn is None:
        made[ROLE] = _aggregator_role(options)
    if options.deploys_provisioner_lambda:
        made[PROVISIONER_ROLE] = _provisioner_role(options)
    return made


def _managed_policy(
    options: StackOptions, component: str, document: Document, description: str
) -> Resource:
    return {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {
            "ManagedPolicyName": _formatted(options.policy_name_format, component),
            "Description": description,
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
    document = aggregator_document(
        stack_places(), archives=options.deploys_archive, traces=options.enable_tracing
    )
    return _lambda_role(options, "aggr", "aggregator", document)


def _provisioner_role(options: StackOptions) -> Resource:
    document = provisioner_document(stack_places(), traces=options.enable_tracing)
    return _lambda_role(options, "prov", "provisioner", document)


def _lambda_role(
    options: StackOptions, component: str, policy: str, document: Document
) -> Resource:
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            **_role(options, component, {"Service": "lambda.amazonaws.com"}),
            "Policies": [{"PolicyName": policy, "PolicyDocument": document}],
        },
    }


def _role(options: StackOptions, component: str, principal: dict[str, Any]) -> dict[str, Any]:
    trust = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    boundary = options.permission_boundary
    return {
        "RoleName": _formatted(options.role_name_format, component),
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
        **({"PermissionsBoundary": boundary_arn(boundary)} if boundary else {}),
    }


def boundary_arn(named: str) -> Any:
    """Return the ARN of a boundary that is given by its name or ARN."""
    if named.startswith("arn:"):
        return named
    return sub("arn:${AWS::Partition}:iam::${AWS::AccountId}:policy/" + named)


def _formatted(pattern: str | None, component: str) -> dict[str, str]:
    return sub((pattern or "{}").replace("{}", "${AWS::StackName}-" + component))
