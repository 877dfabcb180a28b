"""The template is correct for CloudFormation, and has what the options say and nothing else."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from cfnlint.api import ManualArgs, lint

from tests.support.pairs import all_pairs
from zae_limiter.backends.dynamodb.schema import get_table_definition
from zae_limiter.infra.aggregator_resources import STAND_IN
from zae_limiter.infra.iam_resources import kept_descriptions
from zae_limiter.infra.limits_template import build_limits_template
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.provisioner_resources import PROVISIONER_STAND_IN
from zae_limiter.infra.table_resource import described_shape, kept_shape, table_shape
from zae_limiter.infra.template import MAX_TEMPLATE_BYTES, METADATA, build_template, template_text
from zae_limiter.infra.template_body import parse_template
from zae_limiter.infra.yaml_text import yaml_text
from zae_limiter.manifest_file import load_manifest

ROLE = "arn:aws:iam::123456789012:role/limiter"
TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"
SETTINGS: dict[str, list[Any]] = {
    "enable_aggregator": [True, False],
    "enable_alarms": [True, False],
    "alarm_sns_topic": [None, TOPIC],
    "permission_boundary": [None, "boundary", "arn:aws:iam::123456789012:policy/boundary"],
    "role_name_format": [None, "pre-{}"],
    "policy_name_format": [None, "{}-post"],
    "enable_audit_archival": [True, False],
    "enable_tracing": [False, True],
    "iam": [{}, {"create_iam_roles": True}, {"create_iam": False}],
    "aggregator_role_arn": [None, ROLE],
    "enable_deletion_protection": [False, True],
    "enable_provisioner": [True, False],
    "pitr_recovery_days": [None, 7],
    "tags": [None, {"team": "a"}],
}
LARGEST = StackOptions(
    alarm_sns_topic=TOPIC,
    permission_boundary="arn:aws:iam::123456789012:policy/boundary",
    role_name_format="r" * 30 + "{}",
    policy_name_format="p" * 110 + "{}",
    enable_tracing=True,
    create_iam_roles=True,
    pitr_recovery_days=7,
    tags={f"{number:0>128}": "v" * 256 for number in range(45)},
)


def chosen_options() -> list[StackOptions]:
    return [StackOptions(**choice.pop("iam"), **choice) for choice in all_pairs(SETTINGS)]


def faults(template: dict[str, Any]) -> list[str]:
    """Return the errors and warnings of cfn-lint."""
    found = lint(template_text(template), config=ManualArgs(regions=["us-east-1", "eu-west-1"]))
    return [f"{match.rule.id} {match.path}: {match.message}" for match in found]


def resources(options: StackOptions, kind: str = "") -> dict[str, Any]:
    made = build_template(options)["Resources"]
    return {name: each for name, each in made.items() if each["Type"].endswith(kind)}


@pytest.mark.parametrize("options", [StackOptions(), LARGEST], ids=["usual", "largest"])
def test_cfn_lint_has_nothing_to_say(options: StackOptions) -> None:
    assert not faults(build_template(options))


@pytest.mark.slow
@pytest.mark.parametrize("options", chosen_options(), ids=lambda options: "")
def test_cfn_lint_has_nothing_to_say_for_every_pair_of_options(options: StackOptions) -> None:
    assert not faults(build_template(options))


@pytest.mark.slow
def test_cfn_lint_would_say_what_is_wrong() -> None:
    template = build_template(StackOptions())
    template["Resources"]["RateLimitsTable"]["Properties"]["BillingMode"] = "FREE"
    assert faults(template)


def test_the_pairs_hold_every_pair() -> None:
    choices = list(all_pairs({"a": [1, 2], "b": [1, 2, 3], "c": [1, 2]}))
    assert {(c["a"], c["b"]) for c in choices} == {(a, b) for a in (1, 2) for b in (1, 2, 3)}
    assert {(c["b"], c["c"]) for c in choices} == {(b, c) for b in (1, 2, 3) for c in (1, 2)}
    assert len(choices) < 12


def test_the_largest_template_needs_no_bucket() -> None:
    assert len(template_text(build_template(LARGEST)).encode()) <= MAX_TEMPLATE_BYTES


@pytest.mark.parametrize("options", [StackOptions(), LARGEST], ids=["usual", "largest"])
def test_yaml_and_json_say_the_same(options: StackOptions) -> None:
    template = build_template(options)
    assert yaml.safe_load(yaml_text(template)) == template
    assert json.loads(template_text(template)) == template


def test_yaml_keeps_texts_that_look_like_something_else() -> None:
    odd: dict[str, Any] = {
        "Null": "no",
        "y": "1",
        "d": "2010-09-09",
        "t": "a: b #c",
        "e": [],
        "m": {},
        "n": None,
    }
    assert yaml.safe_load(yaml_text([odd, "Off", 1, True, [["x"], {"k": [1]}]])) == [
        *(odd, "Off", 1, True),
        [["x"], {"k": [1]}],
    ]


def test_the_table_is_the_one_that_create_table_makes() -> None:
    made = resources(StackOptions())["RateLimitsTable"]["Properties"]
    definition = get_table_definition("x")
    for name in ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes", "BillingMode"):
        assert made[name] == definition[name]
    view = definition["StreamSpecification"]["StreamViewType"]
    assert made["StreamSpecification"] == {"StreamViewType": view}
    assert made["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert made["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
    projections = {
        index["IndexName"]: index["Projection"]["ProjectionType"]
        for index in made["GlobalSecondaryIndexes"]
    }
    assert projections == {
        "GSI1": "INCLUDE",
        "GSI2": "KEYS_ONLY",
        "GSI3": "KEYS_ONLY",
        "GSI4": "KEYS_ONLY",
    }


def test_a_table_that_exists_keeps_its_indexes() -> None:
    described = get_table_definition("x")
    described["GlobalSecondaryIndexes"][1]["Projection"] = {"ProjectionType": "ALL"}
    described["GlobalSecondaryIndexes"][0]["IndexStatus"] = "ACTIVE"
    described["LocalSecondaryIndexes"] = [
        {
            "IndexName": "LSI1",
            "KeySchema": [
                {"AttributeName": "PK", "KeyType": "HASH"},
                {"AttributeName": "LSI1SK", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
            "IndexArn": "arn",
        }
    ]
    described["AttributeDefinitions"].append({"AttributeName": "LSI1SK", "AttributeType": "S"})
    template = build_template(StackOptions(), described_shape(described), "LATEST")
    assert not faults(template)
    made = template["Resources"]["RateLimitsTable"]["Properties"]
    assert made["GlobalSecondaryIndexes"][1]["Projection"] == {"ProjectionType": "ALL"}
    assert [index["IndexName"] for index in made["LocalSecondaryIndexes"]] == ["LSI1"]
    assert "IndexStatus" not in json.dumps(made)
    mapping = template["Resources"]["AggregatorEventSourceMapping"]["Properties"]
    assert mapping["StartingPosition"] == "LATEST"


def test_a_table_keeps_the_order_that_its_template_has() -> None:
    """CloudFormation takes another order for a change that needs a new table."""
    template = build_template(StackOptions())
    properties = template["Resources"]["RateLimitsTable"]["Properties"]
    for name in ("AttributeDefinitions", "GlobalSecondaryIndexes"):
        properties[name].reverse()
    for body in (template, yaml_text(template)):
        kept = kept_shape(parse_template(body))
        assert kept != table_shape()
        assert kept == {name: properties[name] for name in table_shape()}


def test_short_forms_of_functions_are_read_as_their_long_forms() -> None:
    text = """
Resources:
  Queue:
    Condition: Wanted
    Properties:
      QueueName: !If [Wanted, !Sub "${AWS::StackName}-q", !Ref Name]
      Key: !GetAtt Key.Arn
      Other: !GetAtt [Key, Arn]
      Wanted: !Condition Wanted
      Joined: !Join ["", [a, !Ref b]]
"""
    (queue,) = parse_template(text)["Resources"].values()
    assert queue == {
        "Condition": "Wanted",
        "Properties": {
            "QueueName": {
                "Fn::If": ["Wanted", {"Fn::Sub": "${AWS::StackName}-q"}, {"Ref": "Name"}]
            },
            "Key": {"Fn::GetAtt": ["Key", "Arn"]},
            "Other": {"Fn::GetAtt": ["Key", "Arn"]},
            "Wanted": {"Condition": "Wanted"},
            "Joined": {"Fn::Join": ["", ["a", {"Ref": "b"}]]},
        },
    }


def test_a_policy_that_exists_keeps_its_description() -> None:
    before = build_template(StackOptions())
    before["Resources"]["ReadOnlyPolicy"]["Properties"]["Description"] = "as it was"
    del before["Resources"]["AggregatePolicy"]
    after = build_template(StackOptions(), descriptions=kept_descriptions(before))["Resources"]
    assert after["ReadOnlyPolicy"]["Properties"]["Description"] == "as it was"
    assert after["AggregatePolicy"]["Properties"]["Description"]


def test_the_stand_in_for_the_code_never_changes() -> None:
    """CloudFormation would put a new text in the place of the code that was uploaded."""
    assert sha256(STAND_IN.encode()).hexdigest().startswith("9fa5440fd948d6c4")
    digest = sha256(PROVISIONER_STAND_IN.encode()).hexdigest()
    assert digest.startswith("06229ae121a6ac39")


def test_records_are_redelivered_until_they_are_counted_or_a_day_old() -> None:
    (mapping,) = resources(StackOptions(), "EventSourceMapping").values()
    said = mapping["Properties"]
    assert said["StartingPosition"] == "TRIM_HORIZON"
    assert said["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert said["BisectBatchOnFunctionError"]
    assert said["MaximumRetryAttempts"] == -1
    assert 3600 < said["MaximumRecordAgeInSeconds"] < 86_400
    assert said["DestinationConfig"]["OnFailure"]["Destination"]


def test_every_alarm_has_the_topic_and_there_is_one_for_lag_and_each_throttle() -> None:
    alarms = resources(StackOptions(alarm_sns_topic=TOPIC), "Alarm")
    assert all(each["Properties"]["AlarmActions"] == [TOPIC] for each in alarms.values())
    metrics = {each["Properties"]["MetricName"] for each in alarms.values()}
    assert metrics >= {"IteratorAge", "ReadThrottleEvents", "WriteThrottleEvents", "Throttles"}
    assert set(resources(StackOptions(enable_aggregator=False), "Alarm")) == {
        "DynamoDBReadThrottleAlarm",
        "DynamoDBWriteThrottleAlarm",
    }
    assert not resources(StackOptions(enable_alarms=False), "Alarm")


def test_the_archive_is_private_encrypted_and_outlives_the_stack() -> None:
    (bucket,) = resources(StackOptions(), "Bucket").values()
    assert bucket["DeletionPolicy"] == "RetainExceptOnCreate"
    said = bucket["Properties"]
    assert set(said["PublicAccessBlockConfiguration"].values()) == {True}
    assert "AES256" in json.dumps(said["BucketEncryption"])
    assert not resources(StackOptions(enable_audit_archival=False), "Bucket")


def test_a_stack_without_iam_has_no_roles_and_no_policies() -> None:
    made = resources(StackOptions(create_iam=False, aggregator_role_arn=ROLE))
    assert not [name for name, each in made.items() if "IAM" in each["Type"]]
    assert made["AggregatorFunction"]["Properties"]["Role"] == ROLE
    assert "AggregatorFunction" not in resources(StackOptions(create_iam=False))


def test_roles_have_the_boundary_and_names_their_format() -> None:
    options = StackOptions(
        create_iam_roles=True,
        permission_boundary="bound",
        role_name_format="r-{}",
        policy_name_format="p-{}",
    )
    roles = resources(options, "IAM::Role")
    assert set(roles) == {
        *("AggregatorRole", "AppRole", "AdminRole", "ReadOnlyRole", "ProvisionerRole")
    }
    for role in roles.values():
        assert role["Properties"]["PermissionsBoundary"]["Fn::Sub"].endswith(":policy/bound")
        assert role["Properties"]["RoleName"]["Fn::Sub"].startswith("r-${AWS::StackName}-")
    policies = resources(options, "ManagedPolicy")
    assert len(policies) == 7
    for policy in policies.values():
        assert policy["Properties"]["ManagedPolicyName"]["Fn::Sub"].startswith("p-")


def test_the_provisioner_has_a_role_and_a_log_of_its_own_and_can_be_left_out() -> None:
    made = resources(StackOptions(enable_tracing=True, log_retention_days=7))
    function = made["ProvisionerFunction"]["Properties"]
    assert function["Handler"] == "zae_limiter_provisioner.handler.on_event"
    assert function["FunctionName"] == {"Fn::Sub": "${AWS::StackName}-limits-provisioner"}
    assert function["Role"] == {"Fn::GetAtt": ["ProvisionerRole", "Arn"]}
    assert function["TracingConfig"] == {"Mode": "Active"}
    assert made["ProvisionerLogGroup"]["Properties"]["RetentionInDays"] == 7
    for options in (StackOptions(enable_provisioner=False), StackOptions(create_iam=False)):
        template = build_template(options)
        parts = [*template["Resources"], *template["Outputs"]]
        assert not [name for name in parts if name.startswith("Provisioner")]


def test_a_template_of_declared_limits_has_nothing_for_cfn_lint_to_say() -> None:
    manifest = load_manifest(Path(__file__).parents[2] / "examples" / "limits.yaml")
    template = build_limits_template("my-app", manifest, force=True)
    assert not faults(template)
    (resource,) = template["Resources"].values()
    assert resource["Type"] == "Custom::ZaeLimiterLimits"
    token = resource["Properties"]["ServiceToken"]["Fn::ImportValue"]
    exports = [
        each["Export"]["Name"] for each in build_template(StackOptions())["Outputs"].values()
    ]
    assert {"Fn::Sub": token.replace("my-app", "${AWS::StackName}")} in exports
    assert yaml.safe_load(yaml_text(template)) == template


def test_outputs_name_only_what_is_there() -> None:
    everything = build_template(StackOptions(create_iam_roles=True))["Outputs"]
    assert everything.keys() >= {
        "TableName",
        "StreamArn",
        "AggregatorFunctionArn",
        "AuditArchiveBucketName",
        "ProvisionerFunctionArn",
        "AcquireOnlyPolicyArn",
        "AppRoleArn",
    }
    assert everything["AggregatorFunctionArn"]["Export"]["Name"] == {
        "Fn::Sub": "${AWS::StackName}-AggregatorArn"
    }
    bare = StackOptions(enable_aggregator=False, create_iam=False, enable_alarms=False)
    assert set(build_template(bare)["Outputs"]) == {"TableName", "TableArn", "StreamArn"}


def test_a_template_keeps_the_options_it_was_made_for() -> None:
    kept = build_template(LARGEST)["Metadata"][METADATA]["Options"]
    assert StackOptions.from_dict(json.loads(json.dumps(kept))) == LARGEST
