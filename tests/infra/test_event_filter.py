"""The aggregator is called with the records that it has work for, and with no others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.infra.test_policies import tool
from tests.support.event_patterns import matches
from tests.support.lambda_events import audit_record, lambda_event
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.schema import RECEIPT_PREFIX
from zae_limiter.backends.dynamodb.stream_records import decode_records
from zae_limiter.infra.event_filter import filter_criteria
from zae_limiter_aggregator.environment import read_environment
from zae_limiter_aggregator.processor import open_work, process_stream_records

MANIFEST = "namespace: tenant\nresources: {gpt-5: {limits: {rpm: 5/min}}}"


def passes(record: dict[str, Any], *, archives: bool = True) -> bool:
    filters = filter_criteria(archives=archives)["Filters"]
    return any(matches(json.loads(each["Pattern"]), record) for each in filters)


@pytest.fixture
def records(table: OwnTable, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Records of every kind of item that a limiter writes, snapshots included."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", table.server.url)
    monkeypatch.setenv("AWS_REGION", table.server.region)
    with SyncRepository.open("tenant", url=table.url) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([Limit.per_minute("rpm", 100)])
        limiter.create_entity("org")
        limiter.create_entity("key", parent_id="org", cascade=True)
        for _ in range(3):
            with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
                lease.adjust(rpm=1)
        with limiter.acquire("key", "gpt-4", {"rpm": 1}, idempotency_key="job-1") as lease:
            lease.adjust(rpm=1)
        tool(table.url, "limits", "apply", "-", "--yes", "-N", "tenant", typed=MANIFEST)
        tool(table.url, "aggregate", "--once")
        work = open_work(read_environment({"TABLE_NAME": table.name}))
        process_stream_records(lambda_event(table)["Records"], work)
        limiter.delete_entity("key")
    found: list[dict[str, Any]] = lambda_event(table)["Records"]
    return found


def test_writes_of_buckets_pass_and_everything_else_is_left_out(
    records: list[dict[str, Any]],
) -> None:
    passed = [record for record in records if passes(record)]
    told = decode_records(records)
    wanted = {change.record_id for change in told.buckets if change.after is not None}
    assert {record["dynamodb"]["SequenceNumber"] for record in passed} == wanted
    assert len(wanted) >= 6
    assert len(records) > len(wanted) + 10
    assert {record["eventName"] for record in passed} == {"INSERT", "MODIFY"}
    kinds = {record["dynamodb"]["Keys"]["SK"]["S"].lstrip("#").split("#")[0] for record in records}
    assert kinds >= {
        "STATE",
        "META",
        "CONFIG",
        "USAGE",
        "AUDIT",
        "NAMESPACE",
        "PROVISIONER",
        "SHARD",
    }
    partitions = {record["dynamodb"]["Keys"]["PK"]["S"].split("/")[1] for record in records}
    assert any(each.startswith(RECEIPT_PREFIX) for each in partitions)


def test_expired_audit_events_pass_if_they_are_archived() -> None:
    assert passes(audit_record(1))
    assert not passes(audit_record(1), archives=False)
    assert not passes(audit_record(1, identity=None))
    assert not passes(audit_record(1, identity={"type": "Service", "principalId": "somebody"}))
