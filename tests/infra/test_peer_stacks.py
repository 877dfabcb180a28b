"""A stack that PyPI's zae-limiter 0.17 deployed is upgraded in place, and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from tests.support.peer.stack import deploy_peer_stack, peer_template
from tests.support.stacks import LocalAws
from zae_limiter import SyncRepository
from zae_limiter.infra.iam_resources import kept_descriptions
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.table_resource import kept_shape
from zae_limiter.infra.template import build_template
from zae_limiter.infra.template_body import parse_template

pytestmark = pytest.mark.slow
EVERYTHING = StackOptions(
    create_iam_roles=True, permission_boundary="bound", role_name_format="r-{}"
)
PARAMETERS = {
    "LambdaTimeout": "120",
    "LambdaDurationThreshold": "60000",
    "LambdaMemorySize": "512",
    "EnableIAMRoles": "true",
    "PITRRecoveryPeriodDays": "7",
}


@pytest.fixture(scope="module")
def theirs() -> Mapping[str, Any]:
    return parse_template(peer_template())


@pytest.fixture(scope="module")
def ours(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The template that an upgrade of their stack would have."""
    return build_template(EVERYTHING, kept_shape(theirs), "LATEST", kept_descriptions(theirs))


def plain(value: Any) -> str:
    """Return a property as it is without names of one's own."""
    while isinstance(value, dict) and "Fn::If" in value:
        value = value["Fn::If"][2]
    return json.dumps(value).replace("r-${", "${")


def fixed_properties(resource: Mapping[str, Any]) -> Iterator[str]:
    """Yield the properties that cannot change without a new resource in its place."""
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", resource["Type"]).schema
    for kind in ("createOnlyProperties", "conditionalCreateOnlyProperties"):
        yield from (path.split("/")[2] for path in schema.get(kind, ()))


def test_no_resource_of_theirs_is_replaced(theirs: Mapping[str, Any], ours: dict[str, Any]) -> None:
    assert theirs["Resources"].keys() <= ours["Resources"].keys()
    for logical_id in theirs["Resources"]:
        before, after = theirs["Resources"][logical_id], ours["Resources"][logical_id]
        for name in fixed_properties(before):
            was, becomes = (plain(each["Properties"].get(name)) for each in (before, after))
            assert was == becomes, f"{name} of {logical_id}"


def test_no_name_of_theirs_goes_to_another_resource(
    theirs: Mapping[str, Any], ours: dict[str, Any]
) -> None:
    """CloudFormation creates the new resource first, and finds its name taken."""

    def names(template: Mapping[str, Any]) -> dict[tuple[str, str], str]:
        found = {}
        for logical_id, resource in template["Resources"].items():
            for name in fixed_properties(resource):
                if name.endswith("Name"):
                    value = plain(resource["Properties"].get(name))
                    found[resource["Type"], value] = logical_id
        return found

    before, after = names(theirs), names(ours)
    moved = {name: after[name] for name in before.keys() & after if before[name] != after[name]}
    assert moved == {}


def test_every_export_of_theirs_stays(theirs: Mapping[str, Any], ours: dict[str, Any]) -> None:
    """CloudFormation refuses to remove an export that another stack imports."""

    def exports(template: Mapping[str, Any]) -> dict[str, str]:
        outputs = template["Outputs"].items()
        return {key: plain(each["Export"]["Name"]) for key, each in outputs if "Export" in each}

    kept = exports(theirs)
    assert len(kept) > 20
    assert kept.items() <= exports(ours).items()


def test_a_stack_of_theirs_is_upgraded_with_its_table_options_tags_and_alarms(
    aws: LocalAws,
) -> None:
    deploy_peer_stack(aws, PARAMETERS, {"team": "search"})
    with SyncRepository.open(url=aws.url) as repository:
        repository.create_entity("org")
    before = table(aws)
    assert aws.result("upgrade")["status"] == "UPDATE_COMPLETE"
    after = table(aws)
    assert after == before
    assert {each["Projection"]["ProjectionType"] for each in after[:2]} == {"ALL"}
    assert len(after) == 4 + 5
    name = f"{aws.stack}-aggregator"
    function = aws.client("lambda").get_function_configuration(FunctionName=name)
    assert (function["Timeout"], function["MemorySize"]) == (120, 512)
    alarms = aws.client("cloudwatch").describe_alarms(AlarmNamePrefix=aws.stack)["MetricAlarms"]
    thresholds = {each["AlarmName"].removeprefix(aws.stack): each["Threshold"] for each in alarms}
    assert thresholds["-aggregator-duration"] == 60_000
    assert len(thresholds) == 7
    (stack,) = aws.client("cloudformation").describe_stacks(StackName=aws.stack)["Stacks"]
    assert {"Key": "team", "Value": "search"} in stack["Tags"]
    with SyncRepository.open(url=aws.url) as repository:
        assert repository.get_entity("org") is not None
    assert aws.result("upgrade")["status"] == "unchanged"
    assert json.loads(aws.out("status", "--json"))["ready"]
    aws.out("delete", "--yes", "--archive", "delete")
    assert aws.remains() == []


def table(aws: LocalAws) -> list[dict[str, Any]]:
    """Return all indexes of the table, by name."""
    told = aws.client("dynamodb").describe_table(TableName=aws.stack)["Table"]
    kinds = ("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
    kept = ("IndexName", "KeySchema", "Projection")
    found = [{name: index[name] for name in kept} for kind in kinds for index in told[kind]]
    return sorted(found, key=lambda index: str(index["IndexName"]))
