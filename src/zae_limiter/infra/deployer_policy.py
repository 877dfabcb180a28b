"""The permissions of whoever deploys a stack: for the calls of `StackManager`, and for those that
CloudFormation makes in the caller's name.

AWS publishes, for every type of resource, the actions that CloudFormation needs. Those are here,
but for features that the template does not use, such as keys of one's own or replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .arns import StackArns
from .options import StackOptions
from .policies import Document, Statement

_STACKS = """
CreateChangeSet DeleteChangeSet DeleteStack DescribeChangeSet DescribeStackEvents DescribeStacks
ExecuteChangeSet GetTemplate ListChangeSets TagResource UntagResource
"""
_TABLES = """
CreateTable DeleteTable DescribeContinuousBackups DescribeContributorInsights
DescribeKinesisStreamingDestination DescribeTable DescribeTimeToLive GetItem GetResourcePolicy
ListTagsOfResource PutItem Scan TagResource UntagResource UpdateContinuousBackups
UpdateContributorInsights UpdateItem UpdateTable UpdateTimeToLive
"""
_FUNCTIONS = """
CreateFunction DeleteFunction DeleteFunctionConcurrency GetFunction GetFunctionCodeSigningConfig
GetFunctionConfiguration GetFunctionRecursionConfig GetFunctionScalingConfig
GetRuntimeManagementConfig ListTags PutFunctionConcurrency PutFunctionRecursionConfig
PutRuntimeManagementConfig TagResource UntagResource UpdateFunctionCode UpdateFunctionConfiguration
"""
_MAPPINGS = """
CreateEventSourceMapping DeleteEventSourceMapping GetEventSourceMapping ListEventSourceMappings
ListTags TagResource UntagResource UpdateEventSourceMapping
"""
_ROLES = """
AttachRolePolicy CreateRole DeleteRole DeleteRolePermissionsBoundary DeleteRolePolicy
DetachRolePolicy GetRole GetRolePolicy ListAttachedRolePolicies ListRolePolicies
PutRolePermissionsBoundary PutRolePolicy TagRole UntagRole UpdateAssumeRolePolicy UpdateRole
UpdateRoleDescription
"""
_POLICIES = """
CreatePolicy CreatePolicyVersion DeletePolicy DeletePolicyVersion GetPolicy GetPolicyVersion
ListEntitiesForPolicy ListPolicyVersions
"""
_QUEUES = """
CreateQueue DeleteQueue GetQueueAttributes GetQueueUrl ListQueueTags SetQueueAttributes TagQueue
UntagQueue
"""
_BUCKETS = """
CreateBucket DeleteBucket DeleteBucketEncryption DeleteBucketLifecycle GetBucketAcl
GetBucketOwnershipControls GetBucketPublicAccessBlock GetBucketTagging GetBucketVersioning
GetEncryptionConfiguration GetLifecycleConfiguration ListBucket ListBucketVersions
ListTagsForResource PutBucketOwnershipControls PutBucketPublicAccessBlock PutBucketTagging
PutEncryptionConfiguration PutLifecycleConfiguration TagResource UntagResource
"""
_OBJECTS = "DeleteObject DeleteObjectVersion"
_LOGS = """
CreateLogGroup DeleteLogGroup DeleteRetentionPolicy DescribeIndexPolicies GetDataProtectionPolicy
ListTagsForResource PutRetentionPolicy TagResource UntagResource
"""
_ALARMS = "DeleteAlarms DescribeAlarms ListTagsForResource PutMetricAlarm TagResource UntagResource"


def deployer_document(arns: StackArns, options: StackOptions) -> Document:
    """Return the policy of whoever deploys, changes, looks at and deletes a stack."""
    places = arns.places
    alarms = arns.regional("cloudwatch", f"alarm:{arns.stack_name}-*")
    statements = [
        _allow(
            "cloudformation", _STACKS, arns.regional("cloudformation", f"stack/{arns.stack_name}/*")
        ),
        _allow("dynamodb", _TABLES, places.table),
        _allow("lambda", _FUNCTIONS, [arns.function, arns.provisioner]),
        _allow("lambda", _MAPPINGS, "*"),
        _allow("sqs", _QUEUES, places.dead_letters),
        _allow("s3", _BUCKETS, arns.archive),
        _allow("s3", _OBJECTS, places.archive),
        _allow("logs", _LOGS, [arns.log_group, arns.provisioner_log]),
        _allow("cloudwatch", _ALARMS, alarms),
        # These are lists, which take no resource.
        _allow("logs", "DescribeLogGroups DescribeResourcePolicies", "*"),
        _allow("cloudformation", "DescribeStacks ListStacks", "*"),
        *(_iam_statements(arns, options) if options.create_iam else ()),
    ]
    roles = _passed_roles(arns, options)
    passing = {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}
    statements.append({**_allow("iam", "PassRole", roles), "Condition": passing})
    return {"Version": "2012-10-17", "Statement": statements}


def _iam_statements(arns: StackArns, options: StackOptions) -> Iterable[Statement]:
    roles = arns.global_(f"role/{options.get_role_name(arns.stack_name, '*')}")
    policies = arns.global_(f"policy/{options.get_policy_name(arns.stack_name, '*')}")
    yield _allow("iam", _ROLES, roles)
    yield _allow("iam", _POLICIES, policies)


def _passed_roles(arns: StackArns, options: StackOptions) -> list[str]:
    own, provisioner = (
        arns.global_(f"role/{options.get_role_name(arns.stack_name, component)}")
        for component in ("aggr", "prov")
    )
    return [options.aggregator_role_arn or own, provisioner]


def _allow(service: str, actions: str, resource: Any) -> Statement:
    named = [f"{service}:{action}" for action in actions.split()]
    return {"Effect": "Allow", "Action": named, "Resource": resource}
