"""Each policy allows the calls that its flows really make, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.support.iam import IamRequest, allows
from tests.support.lambda_events import lambda_event
from tests.support.recorded import TABLE_ARN, RecordedTable, Recording
from tests.support.servers.chaos import ChaosProxy
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, RateLimitExceeded, SyncLease, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.schema import pk_stream, pk_system
from zae_limiter.cli import cli
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.located import locate_plain
from zae_limiter.core.manifest import DeclaredEntity, Manifest
from zae_limiter.core.manifest_reader import read_manifest
from zae_limiter.core.planner import Intent
from zae_limiter.flows.scope import Scope
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.flows.shards.merge import merge_down
from zae_limiter.infra.arns import StackArns
from zae_limiter.infra.iam_resources import MANAGED_POLICIES, PURPOSES
from zae_limiter.infra.policies import (
    NAMESPACE_TAG,
    aggregator_document,
    policy_documents,
    provisioner_document,
)
from zae_limiter.runtime.blocking import run
from zae_limiter_aggregator.environment import read_environment
from zae_limiter_aggregator.processor import open_work, process_stream_records
from zae_limiter_provisioner.requests import ProvisionRequest
from zae_limiter_provisioner.work import Provisioner

ARNS = StackArns("my-app", "us-east-1", "123456789012")
POLICIES = policy_documents(ARNS.places)
EVERYWHERE = ("acq", "full", "read", "aggregate")
NAMESPACED = ("ns-acq", "ns-full", "ns-read")
LIMITS = [Limit.per_minute("rpm", 100)]
RESOURCE = "gpt-4"
DECLARED = {
    "namespace": "new",
    "system": {"limits": {"rpm": 60}},
    "resources": {RESOURCE: {"limits": {"rpm": 10}}},
    "entities": {"a": {"parent": "org", "name": "A", "limits": {"rpm": 5}}, "org": {"name": "O"}},
}
READING = [
    ("check",),
    ("version",),
    ("namespace", "list"),
    ("namespace", "show", "ours"),
    ("entity", "list", "-N", "ours"),
    ("bucket", "list", "-r", RESOURCE, "-N", "ours"),
    ("bucket", "top", "-r", RESOURCE, "-N", "ours"),
    ("usage", "top", "-r", RESOURCE, "-N", "ours"),
    ("limits", "export", "-N", "ours"),
]
MANIFEST = """
system:
  limits: {rpm: 100/min}
resources:
  gpt-4: {limits: {rpm: 10/min}}
entities:
  org-2: {resources: {gpt-4: {limits: {rpm: 5/min}}}}
"""


@pytest.fixture
def recorded(table: OwnTable) -> Iterator[RecordedTable]:
    with ChaosProxy(table.server.url) as proxy:
        yield RecordedTable(table, proxy)


@pytest.fixture
def ours(recorded: RecordedTable) -> Iterator[str]:
    """The id of a namespace with entities, limits and a bucket in two items."""
    with SyncRepository.open("ours", url=recorded.url) as repository:
        # As every deployed table has one.
        repository.set_version_record("0.10.0")
        prepare(repository)
        yield repository.namespace_id


def prepare(repository: SyncRepository) -> None:
    repository.set_system_defaults(LIMITS)
    repository.create_entity("org")
    repository.create_entity("key", parent_id="org", cascade=True)
    limiter = SyncRateLimiter(repository)
    with limiter.acquire("key", RESOURCE, {"rpm": 1}):
        pass
    scope = repository.scope
    home = BucketAddress(repository.namespace_id, "org", RESOURCE)
    for address, bucket in run(read_all(scope, home)).items():
        assert run(split_shard(scope, address, bucket))


def tool(url: str, *args: str, typed: str | None = None) -> str:
    result = CliRunner().invoke(cli, [*args, "--url", url], input=typed)
    assert result.exit_code == 0, result.output
    return result.stdout


def acquire(url: str, namespace: str = "ours") -> None:
    """Everything that an application does: charge, correct, refund, be refused, split, look."""
    for connect in (SyncRepository.connect, SyncRepository.open):
        with connect(namespace, url=url) as repository:
            limiter = SyncRateLimiter(repository)
            for amount in (1, 30, 60):
                use(limiter, amount)
            with pytest.raises(ZeroDivisionError), limiter.acquire("new", RESOURCE, {"rpm": 1}):
                raise ZeroDivisionError
            with limiter.acquire("own", "gpt-5", {"tpm": 1}, limits=[Limit.per_day("tpm", 9)]):
                pass
            limiter.available("key", RESOURCE)
            limiter.time_until_available("key", RESOURCE, {"rpm": 50})
            home = BucketAddress(repository.namespace_id, "new", RESOURCE)
            for address, bucket in run(read_all(repository.scope, home)).items():
                run(split_shard(repository.scope, address, bucket))
            hand_over(limiter)
            merge_again(repository.scope, home)


def merge_again(scope: Scope, home: BucketAddress) -> None:
    """Undo a split, and fence the item, as a client does whose refund was lost."""
    assert len(run(read_all(scope, home))) > 1
    run(merge_down(scope, home, Intent(LimitSet.of(LIMITS), {}, 0, None, None, False), 1))
    assert run(read_all(scope, home))[home].shard_count == 1
    assert run(scope.store.buckets.fence(home, scope.io.operation_id()))


def hand_over(limiter: SyncRateLimiter) -> None:
    """Charge keys, repeat them, hand leases over, and end them in each way."""
    key = limiter.scope.io.operation_id()
    for number in range(2):
        with limiter.acquire("new", RESOURCE, {"rpm": 1}, idempotency_key=key, timeout=1) as lease:
            assert lease.is_repeat is bool(number)
    for amount in (3, 0):
        lease = limiter.reserve("new", RESOURCE, {"rpm": 2}, lease_ttl=60)
        lease.consume(rpm=1)
        taken_up = SyncLease.from_token(limiter, lease.token())
        taken_up.commit(rpm=5) if amount else taken_up.release()
    with pytest.raises(RateLimitExceeded):
        limiter.reserve("new", RESOURCE, {"rpm": 100}, idempotency_key=f"{key}-2")


def use(limiter: SyncRateLimiter, amount: int) -> None:
    try:
        with limiter.acquire("key", RESOURCE, {"rpm": amount}) as lease:
            lease.adjust(rpm=2)
            lease.consume(rpm=1)
    except RateLimitExceeded:
        pass


def read(url: str) -> None:
    """Everything that looks and changes nothing."""
    with SyncRepository.connect("ours", url=url) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.get_entity("key")
        limiter.get_children("org")
        limiter.list_entities()
        limiter.list_entities(parent_id="org")
        limiter.get_limits("key")
        limiter.get_resource_defaults(RESOURCE)
        limiter.get_system_defaults()
        limiter.list_resources_with_defaults()
        limiter.list_resources_with_entity_configs()
        limiter.list_entities_with_custom_limits(RESOURCE)
        limiter.get_audit_events("key")
        limiter.get_usage_snapshots("key")
        limiter.get_usage_snapshots(resource=RESOURCE)
        limiter.get_usage_summary("key")
        limiter.get_resource_capacity(RESOURCE, "rpm")
        limiter.available("key", RESOURCE)
        repository.get_buckets("key")
        repository.get_resource_buckets(RESOURCE)
        repository.get_version_record()
        repository.get_namespace("ours")
        assert repository.ping()
    for command in READING:
        tool(url, *command)


def change(url: str, namespace: str = "ours") -> None:
    """Everything that changes a namespace."""
    with SyncRepository.connect(namespace, url=url) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults(LIMITS)
        limiter.set_resource_defaults(RESOURCE, LIMITS)
        limiter.create_entity("other")
        limiter.update_entity("other", name="Other")
        limiter.set_limits("other", LIMITS, RESOURCE)
        with limiter.acquire("other", RESOURCE, {"rpm": 1}):
            pass
        limiter.delete_limits("other", RESOURCE)
        limiter.delete_resource_defaults(RESOURCE)
        limiter.delete_entity("other")
        limiter.delete_system_defaults()
    for manifest in (MANIFEST, ""):
        typed = f"namespace: {namespace}\n{manifest}"
        tool(url, "limits", "apply", "-", "--yes", "-N", namespace, typed=typed)


def manage(url: str) -> None:
    """Everything that changes the registry of namespaces and the version record."""
    with SyncRepository.open("theirs", url=url) as repository:
        prepare(repository)
        repository.register_namespace("gone")
        repository.delete_namespace("gone")
        for each in repository.list_orphan_namespaces():
            repository.recover_namespace(each["namespace_id"])
            repository.delete_namespace(each["namespace"])
            repository.purge_namespace(each["namespace_id"])
        assert repository.get_audit_events("$NAMESPACE:gone")
        repository.list_namespaces()
        repository.set_version_record("0.10.0")


def aggregate(url: str) -> None:
    result = CliRunner().invoke(cli, ["aggregate", "--once", "--json", "--url", url])
    assert result.exit_code == 0, result.output
    assert '"processed": 0' not in result.output.splitlines()[-1]


def refused(
    policy: str, recording: Recording, tags: dict[str, str] | None = None
) -> list[IamRequest]:
    return [r for r in recording.requests if not allows(POLICIES[policy], r, tags)]


def told(requests: list[IamRequest]) -> list[str]:
    return sorted({str(request) for request in requests})


def writes(recording: Recording) -> list[IamRequest]:
    changing = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "ConditionCheckItem")
    return recording.of_actions(*changing)


@pytest.mark.parametrize("policy", ["acq", "ns-acq", "full", "ns-full"])
def test_applications_can_acquire(policy: str, recorded: RecordedTable, ours: str) -> None:
    with recorded.recording() as made:
        acquire(recorded.url)
    assert len(writes(made)) > 10
    assert told(refused(policy, made, {NAMESPACE_TAG: ours})) == []


@pytest.mark.parametrize("policy", ["read", "ns-read", "full", "ns-full", "acq", "ns-acq"])
def test_readers_can_read(policy: str, recorded: RecordedTable, ours: str) -> None:
    with recorded.recording() as made:
        read(recorded.url)
    assert not writes(made)
    assert told(refused(policy, made, {NAMESPACE_TAG: ours})) == []


@pytest.mark.parametrize("policy", ["full", "ns-full"])
def test_operators_can_change_a_namespace(policy: str, recorded: RecordedTable, ours: str) -> None:
    with recorded.recording() as made:
        change(recorded.url)
    assert told(refused(policy, made, {NAMESPACE_TAG: ours})) == []


def test_whoever_acquires_or_reads_can_change_nothing_else(
    recorded: RecordedTable, ours: str
) -> None:
    with recorded.recording() as made:
        change(recorded.url)
        manage(recorded.url)
    others = [r for r in writes(made) if not all("/BUCKET#" in key for key in r.keys)]
    assert len(others) > 20
    tags = {NAMESPACE_TAG: ours}
    for policy in ("acq", "ns-acq"):
        assert [str(r) for r in others if allows(POLICIES[policy], r, tags)] == []
    for policy in ("read", "ns-read"):
        assert [str(r) for r in writes(made) if allows(POLICIES[policy], r, tags)] == []


def test_only_operators_of_everything_can_change_the_registry(
    recorded: RecordedTable, ours: str
) -> None:
    with recorded.recording() as made:
        manage(recorded.url)
    assert told(refused("full", made)) == []
    registry = [r for r in writes(made) if pk_system("_") in r.keys]
    assert len(registry) > 5
    for policy in (*NAMESPACED, "acq", "read", "aggregate"):
        tags = {NAMESPACE_TAG: ours}
        assert [str(r) for r in registry if allows(POLICIES[policy], r, tags)] == []


def test_a_tenant_reaches_nothing_of_another(recorded: RecordedTable, ours: str) -> None:
    with SyncRepository.open("theirs", url=recorded.url) as repository:
        prepare(repository)
    with recorded.recording() as made:
        acquire(recorded.url, "theirs")
        change(recorded.url, "theirs")
    foreign = [r for r in made.requests if set(r.keys) - {pk_system("_"), pk_stream()}]
    assert len(foreign) > 50
    for policy in NAMESPACED:
        for tags in ({NAMESPACE_TAG: ours}, {}, {NAMESPACE_TAG: ""}):
            assert [str(r) for r in foreign if allows(POLICIES[policy], r, tags)] == []


def test_a_request_for_several_tenants_at_once_is_refused(ours: str) -> None:
    keys = (f"{ours}/ENTITY#a", "another/ENTITY#a")
    both = IamRequest("dynamodb:BatchGetItem", TABLE_ARN, {"dynamodb:LeadingKeys": keys})
    scan = IamRequest("dynamodb:Scan", TABLE_ARN)
    without_keys = IamRequest("dynamodb:Query", TABLE_ARN)
    for policy in NAMESPACED:
        for request in (both, scan, without_keys):
            assert not allows(POLICIES[policy], request, {NAMESPACE_TAG: ours})


def test_an_aggregator_can_count_and_change_nothing_else(
    recorded: RecordedTable, ours: str
) -> None:
    with recorded.recording() as used:
        acquire(recorded.url)
    with recorded.recording() as made:
        aggregate(recorded.url)
    assert told(refused("aggregate", made)) == []
    assert {"DescribeStream", "GetRecords", "GetShardIterator", "DescribeTable"} <= actions(made)
    with recorded.recording() as changes:
        change(recorded.url)
    configs = [r for r in writes(changes) if any("/AUDIT#" in k or "/SYSTEM#" in k for k in r.keys)]
    assert configs
    assert [str(r) for r in configs if allows(POLICIES["aggregate"], r)] == []
    assert used.requests


def test_the_lambdas_role_suffices_for_its_handler(
    recorded: RecordedTable, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire(recorded.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", recorded.proxy.url)
    monkeypatch.setenv("AWS_REGION", recorded.table.server.region)
    work = open_work(read_environment({"TABLE_NAME": recorded.table.name}))
    document = aggregator_document(ARNS.places, archives=True, traces=False)
    with recorded.recording() as made:
        records = lambda_event(recorded.table)["Records"]
        assert process_stream_records(records, work).snapshots_updated
    assert writes(made)
    assert told([r for r in made.requests if not allows(document, r)]) == []


def test_the_provisioners_role_suffices_for_its_handler_and_for_no_bucket(
    recorded: RecordedTable, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", recorded.proxy.url)
    monkeypatch.setenv("AWS_REGION", recorded.table.server.region)
    provisioner = Provisioner.open(recorded.table.name)
    document = provisioner_document(ARNS.places, traces=False)
    declared = read_manifest(locate_plain(DECLARED))
    renamed = replace(declared, entities={"a": DeclaredEntity("a", "B", "org")})
    with recorded.recording() as made:
        for manifest in (declared, renamed, Manifest("new")):
            request = ProvisionRequest("apply", manifest, force=True)
            run(provisioner.plan(replace(request, namespace_id=ours)))
            run(provisioner.apply(request, lambda: 10**6))
    assert {"PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"} <= actions(made)
    assert told([r for r in made.requests if not allows(document, r)]) == []
    with recorded.recording() as using:
        acquire(recorded.url)
    charges = [r for r in writes(using) if any("/BUCKET#" in key for key in r.keys)]
    assert charges
    assert [str(r) for r in charges if allows(document, r)] == []
    granted = {a for s in document["Statement"] for a in s["Action"] if "dynamodb:" in a}
    used = {request.action for request in made.requests}
    assert granted <= used


def actions(recording: Recording) -> set[str]:
    return {request.action.removeprefix("dynamodb:") for request in recording.requests}


def test_policies_grant_no_action_that_no_flow_uses(recorded: RecordedTable, ours: str) -> None:
    with recorded.recording() as acquiring:
        acquire(recorded.url)
    with recorded.recording() as reading:
        read(recorded.url)
    with recorded.recording() as counting:
        aggregate(recorded.url)
    with recorded.recording() as changing:
        change(recorded.url)
        manage(recorded.url)
    using = actions(acquiring) | actions(reading)
    # Migrations scan the table, and checking a table for its stream describes it.
    needed = {
        "acq": using,
        "ns-acq": using,
        "read": actions(reading) | {"DescribeTable"},
        "ns-read": actions(reading),
        "full": using | actions(changing) | {"Scan", "DescribeTable"},
        "ns-full": using | actions(changing),
        "aggregate": actions(counting) | actions(acquiring),
    }
    for policy, document in POLICIES.items():
        granted = {
            action.removeprefix("dynamodb:")
            for statement in document["Statement"]
            for action in statement["Action"]
        }
        assert granted <= needed[policy], policy


def test_every_policy_has_a_purpose_and_fits_into_iam() -> None:
    assert set(POLICIES) == {*EVERYWHERE, *NAMESPACED} == set(MANAGED_POLICIES) == set(PURPOSES)
    for document in POLICIES.values():
        assert len(json.dumps(document, separators=(",", ":"))) < 6144
