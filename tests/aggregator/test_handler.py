"""The Lambda's handler, fed with records of a real stream: redelivered, cut, damaged."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.lambda_events import audit_record, lambda_event
from tests.support.s3_bucket import Bucket
from tests.support.servers.chaos import THROTTLED, ChaosProxy
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.core.exceptions import ValidationError
from zae_limiter.flows.stream.aggregate import WRITES_AT_ONCE
from zae_limiter.runtime.blocking import run
from zae_limiter_aggregator import handler
from zae_limiter_aggregator.environment import read_environment
from zae_limiter_aggregator.handler import lowest, opened_work
from zae_limiter_aggregator.processor import (
    aggregate_bucket_states,
    extract_deltas,
    propagate_shard_count,
    try_proactive_shard,
    try_refill_bucket,
)

CONTEXT = SimpleNamespace(aws_request_id="request-1")
pytestmark = pytest.mark.usefixtures("deployed")


@pytest.fixture
def event(table: OwnTable, repository: SyncRepository) -> dict[str, Any]:
    """Ten acquires by each of three entities, one of them refunded."""
    limiter = SyncRateLimiter(repository)
    limiter.set_system_defaults([Limit.per_minute("rpm", 1000)])
    for entity_id in ("a", "b", "c"):
        for _ in range(10):
            with limiter.acquire(entity_id, "gpt-4", {"rpm": 2}):
                pass
    with pytest.raises(ZeroDivisionError), limiter.acquire("a", "gpt-4", {"rpm": 2}):
        raise ZeroDivisionError
    return lambda_event(table)


def usage(repository: SyncRepository) -> dict[str, tuple[int, int]]:
    found, _ = repository.get_usage_snapshots(resource="gpt-4", window_type="monthly")
    return {each.entity_id: (each.counters["rpm"], each.total_events) for each in found}


EXACT = dict.fromkeys(("a", "b", "c"), (20, 10))


def test_an_event_is_counted_and_answered_with_its_counts(
    event: dict[str, Any], repository: SyncRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = handler(event, CONTEXT)
    assert usage(repository) == EXACT
    assert answer["statusCode"] == 200
    assert answer["batchItemFailures"] == []
    assert answer["body"]["processed"] == 32
    assert answer["body"]["snapshots_updated"] == 9
    assert answer["body"].keys() >= {"refills_written", "events_archived", "errors"}
    (line,) = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert line["request_id"] == "request-1"
    assert line["processed"] == 32


def test_a_redelivered_event_changes_nothing(
    event: dict[str, Any], repository: SyncRepository
) -> None:
    handler(event, CONTEXT)
    assert handler(event, CONTEXT)["body"]["snapshots_updated"] == 0
    assert usage(repository) == EXACT


def test_an_event_that_is_bisected_after_being_counted_in_part_is_exact(
    event: dict[str, Any], repository: SyncRepository
) -> None:
    records = event["Records"]
    chance = random.Random(4)
    for _ in range(5):
        first = 0
        while first < len(records):
            size = chance.choice([1, 3, 8])
            handler({"Records": records[first : first + size]}, CONTEXT)
            first += max(1, size - chance.choice([0, 2]))
    assert usage(repository) == EXACT


def test_poison_records_are_counted_and_keep_nothing_from_being_counted(
    event: dict[str, Any], repository: SyncRepository
) -> None:
    clean = copy.deepcopy(event["Records"][-1])
    no_time = copy.deepcopy(clean)
    del no_time["dynamodb"]["ApproximateCreationDateTime"]
    damaged = copy.deepcopy(clean)
    damaged["dynamodb"]["NewImage"]["b_rpm_tc"] = {"N": "many"}
    foreign: dict[str, Any] = {"dynamodb": {"Keys": {"id": {"S": "1"}}}, "eventName": "INSERT"}
    for poison in (no_time, damaged, foreign, {}, {"dynamodb": None}):
        poisoned = {"Records": [poison, *event["Records"], poison]}
        answer = handler(poisoned, CONTEXT)
        assert answer["batchItemFailures"] == []
        assert answer["body"]["skipped"] == 2
        assert answer["body"]["errors"]
    assert usage(repository) == EXACT


def test_a_write_that_fails_is_answered_as_the_lowest_failed_record(
    event: dict[str, Any], repository: SyncRepository, proxy: ChaosProxy
) -> None:
    numbers = [record["dynamodb"]["SequenceNumber"] for record in event["Records"]]
    proxy.use([THROTTLED] * 10_000)
    answer = handler(event, CONTEXT)
    proxy.use(())
    (failure,) = answer["batchItemFailures"]
    assert answer["body"]["errors"]
    first = numbers.index(failure["itemIdentifier"])
    again = handler({"Records": event["Records"][first:]}, CONTEXT)
    assert again["batchItemFailures"] == []
    assert usage(repository) == EXACT


def test_as_many_snapshots_are_written_at_a_time_as_are_planned_together() -> None:
    barrier = threading.Barrier(WRITES_AT_ONCE)

    async def meet(number: int) -> int:
        # Where fewer run at a time, they never meet.
        barrier.wait(10)
        return number

    numbers = range(WRITES_AT_ONCE)
    met = run(opened_work().scope.io.gather([meet(number) for number in numbers]))
    assert met == list(numbers)


def test_expired_audit_events_are_archived_by_the_handler(bucket: Bucket) -> None:
    answer = handler({"Records": [audit_record(1), audit_record(2, identity=None)]}, CONTEXT)
    assert answer["body"]["events_archived"] == 1
    bucket.fails = True
    answer = handler({"Records": [audit_record(30), audit_record(4)]}, CONTEXT)
    assert answer["batchItemFailures"] == [{"itemIdentifier": "4"}]


def test_the_lowest_of_numbers_of_different_length_is_by_value() -> None:
    assert lowest(["10", "9"]) == [{"itemIdentifier": "9"}]
    assert lowest([]) == []


def test_steps_of_the_processor_can_be_called_alone(event: dict[str, Any]) -> None:
    deltas = extract_deltas(event["Records"])
    assert sum(delta.tokens_delta_milli for delta in deltas) == 60_000
    states = aggregate_bucket_states(event["Records"])
    assert {address.entity_id for address in states} == {"a", "b", "c"}
    scope = opened_work().scope
    address, state = next(iter(states.items()))
    assert not try_refill_bucket(scope, address, state)
    assert not try_proactive_shard(scope, address, state)
    assert propagate_shard_count(scope, event["Records"]) == 0


def test_an_empty_event_needs_no_call(table: OwnTable) -> None:
    assert handler({"Records": []}, None)["body"]["processed"] == 0


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {},
        {"TABLE_NAME": " "},
        {"TABLE_NAME": "table", "SNAPSHOT_WINDOWS": "weekly"},
        {"TABLE_NAME": "table", "SNAPSHOT_TTL_DAYS": "soon"},
        {"TABLE_NAME": "table", "SNAPSHOT_TTL_DAYS": "0"},
        {"TABLE_NAME": "table", "SNAPSHOT_TTL_DAYS": "9999999"},
        {"TABLE_NAME": "table", "SNAPSHOT_TTL_DAYS": "9" * 5000},
        {"TABLE_NAME": "table", "ENABLE_REFILL": "yes"},
        {"TABLE_NAME": "table", "ENABLE_ARCHIVAL": "1", "ARCHIVE_BUCKET_NAME": "b"},
        {"TABLE_NAME": "table", "ENABLE_ARCHIVAL": "true"},
    ):
        with pytest.raises(ValidationError):
            read_environment(wrong)
    settings = read_environment({"TABLE_NAME": "table", "ARCHIVE_BUCKET_NAME": "b"})
    assert settings.stream.windows == ("hourly", "daily")
    assert settings.archive_bucket is None


def test_importing_the_handler_imports_no_client_of_others() -> None:
    code = "import zae_limiter_aggregator.handler, sys; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"aiobotocore", "aiohttp", "boto3", "botocore", "click", "rich", "sqlite3", "urllib3"}
    assert not heavy & set(said.stdout.split())
