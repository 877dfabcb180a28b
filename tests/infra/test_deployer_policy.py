"""Whoever has the deployer's policy can deploy: its own calls, and CloudFormation's for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from tests.support.aws_requests import iam_requests
from tests.support.cli_runner import Zael
from tests.support.iam import IamRequest, allows
from tests.support.servers.chaos import ChaosProxy
from tests.support.stacks import LocalAws
from zae_limiter.infra.arns import StackArns
from zae_limiter.infra.deployer_policy import deployer_document
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.template import build_template

ROLE = "arn:aws:iam::123456789012:role/own"
EVERYTHING = StackOptions(create_iam_roles=True, enable_tracing=True)
# Actions for features that the template has none of, and lists that CloudFormation needs to import.
UNUSED = re.compile(
    r"(kms|ec2|elasticfilesystem|s3files|kinesis|s3tables|firehose):\w+|iam:CreateServiceLinkedRole"
    r"|\w+:(DescribeImport|ImportTable|\w*TableReplica\w*|\w*KinesisStreamingDestination)"
    r"|dynamodb:(Scan|Query|DeleteItem|BatchWriteItem|PutResourcePolicy|DeleteResourcePolicy)"
    r"|lambda:(\w*CodeSigningConfig|GetLayerVersion|PutFunctionScalingConfig|PublishVersion"
    r"|PassCapacityProvider|AssociateRuntimeAlias)|s3:(GetObject\w*|REST.PUT.OBJECT|PutObjectAcl)"
    r"|s3:\w*(Abac|Analytics|CORS|Cors|Inventory|Metrics|Notification|Replication|Website"
    r"|Accelerate|ObjectLock|Logging|Versioning|IntelligentTiering|Metadata|BucketAcl)\w*"
    r"|s3:DeleteObject|iam:\w*(Group|User)Policy|dynamodb:DescribeKinesis\w*"
    r"|logs:(\w*DataProtection\w*|\w*LogDelivery\w*|\w*ResourcePolic\w*|\w*IndexPolic\w*"
    r"|\w*KmsKey|\w*BearerToken\w*|\w*LogGroupDeletionProtection|\w*LogStreams?|PutLogEvents)"
)

# Actions of the manager's own calls, which a test below records.
OWN_CALLS = {
    *(f"cloudformation:{name}" for name in (
        *("CreateChangeSet", "DeleteChangeSet", "DescribeChangeSet", "ExecuteChangeSet"),
        *("DeleteStack", "DescribeStacks", "DescribeStackEvents", "GetTemplate"),
        *("ListChangeSets", "ListStacks", "TagResource", "UntagResource"),
    )),
    "lambda:GetFunctionConfiguration",
    *("lambda:ListEventSourceMappings", "s3:DeleteObjectVersion", "s3:ListBucketVersions"),
}  # fmt: skip


def handler_actions(resource_type: str) -> Iterator[str]:
    """Yield the actions that CloudFormation needs to create, change and delete a resource."""
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", resource_type).schema
    for name in ("create", "read", "update", "delete"):
        yield from schema["handlers"][name]["permissions"]


def granted(document: dict[str, Any]) -> set[str]:
    return {action for each in document["Statement"] for action in each["Action"]}


def test_every_action_that_cloudformation_needs_is_granted() -> None:
    template = build_template(EVERYTHING)
    types = {resource["Type"] for resource in template["Resources"].values()}
    assert len(types) == 9
    needed = {action for each in types for action in handler_actions(each)}
    used = {action for action in needed if not UNUSED.fullmatch(action)}
    assert len(used) > 70
    allowed = granted(deployer_document(StackArns("my-app"), EVERYTHING))
    assert used - allowed == set()
    assert allowed - needed - OWN_CALLS == set()


def test_the_policy_is_bound_to_the_names_of_one_stack() -> None:
    arns = StackArns("my-app", "us-east-1", "123456789012")
    document = deployer_document(arns, EVERYTHING)
    other = StackArns("other", "us-east-1", "123456789012")
    for action, place in (
        ("dynamodb:DeleteTable", "places.table"),
        ("lambda:UpdateFunctionCode", "function"),
        ("logs:DeleteLogGroup", "log_group"),
        ("s3:DeleteBucket", "archive"),
    ):
        mine, theirs = arns, other
        for part in place.split("."):
            mine, theirs = getattr(mine, part), getattr(theirs, part)
        assert allows(document, IamRequest(action, str(mine).replace("*", "x")))
        assert not allows(document, IamRequest(action, str(theirs).replace("*", "x")))
    assert not allows(document, IamRequest("iam:CreateRole", other.global_("role/other-app")))
    assert len(json.dumps(document, separators=(",", ":"))) < 6144


def test_a_role_is_passed_to_lambda_only() -> None:
    document = deployer_document(StackArns("my-app"), StackOptions(aggregator_role_arn=ROLE))
    for service, allowed in (("lambda.amazonaws.com", True), ("ec2.amazonaws.com", False)):
        context = {"iam:PassedToService": (service,)}
        assert allows(document, IamRequest("iam:PassRole", ROLE, context)) is allowed
    without = deployer_document(StackArns("my-app"), StackOptions(create_iam=False))
    assert "iam:CreateRole" not in granted(without)


def test_policies_are_printed_for_a_stack(zael: Zael) -> None:
    printed = json.loads(zael.out("iam-policy", "deployer", "--name", "my-app"))
    assert printed == deployer_document(StackArns("my-app"), StackOptions())
    for component in ("acq", "ns-full", "aggregate", "aggregator"):
        text = zael.out("iam-policy", component, "-n", "my-app", "--region", "eu-west-1")
        assert "arn:aws:dynamodb:eu-west-1:*:table/my-app" in text
    assert "s3:PutObject" in zael.out("iam-policy", "aggregator")
    assert "s3:PutObject" not in zael.out("iam-policy", "aggregator", "--no-audit-archival")


@pytest.mark.slow
def test_every_call_of_deploying_is_granted(aws: LocalAws) -> None:
    options = StackOptions()
    with ChaosProxy(aws.server.url) as proxy:
        through = replace(aws, server=replace(aws.server, url=proxy.url))
        through.out("deploy")
        through.out("deploy")
        through.out("upgrade", "--lambda-memory", "512")
        through.out("status")
        through.out_anywhere("list")
        bucket = aws.client("s3").list_buckets()["Buckets"]
        (archive,) = [each["Name"] for each in bucket if aws.stack in each["Name"]]
        aws.client("s3").put_object(Bucket=archive, Key="audit/x", Body=b"x")
        through.out("delete", "--yes", "--archive", "delete")
        through.out("delete", "--yes", "--archive", "delete")
        sent = [request for request, _ in proxy.requests]
    arns = StackArns(aws.stack, "us-east-1", "000000000000")
    document = deployer_document(arns, options)
    needed = [each for request in sent for each in iam_requests(request, arns)]
    assert sorted({str(each) for each in needed if not allows(document, each)}) == []
    # To tag is CloudFormation's part, and sets are listed after a plan that failed.
    unseen = {f"cloudformation:{n}" for n in ("ListChangeSets", "TagResource", "UntagResource")}
    assert OWN_CALLS - {each.action for each in needed} == unseen
