"""`zae-limiter doctor` on a DynamoDB table."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.dynamodb import replace_record
from tests.support.servers.chaos import ChaosProxy, Pass, Request, service_error
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.cli import cli
from zae_limiter.cli.doctor.table_checks import check_skew
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime.blocking import run


@pytest.fixture
def used(table: OwnTable) -> OwnTable:
    with SyncRepository.open("default", url=table.url) as repository:
        repository.create_table()
        repository.set_resource_defaults("gpt-4", [Limit.per_day("rpd", 100)])
        take(repository)
    return table


def take(repository: SyncRepository, entity_id: str = "key-1") -> None:
    with SyncRateLimiter(repository).acquire(entity_id, "gpt-4", {"rpd": 1}):
        pass


def findings(url: str, code: int = 0) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(cli, ["doctor", "--json", "--url", url])
    assert result.exit_code == code, result.output
    return {each["check"]: each for each in json.loads(result.stdout)["findings"]}


def test_a_table_that_nothing_counts_is_warned_of(used: OwnTable) -> None:
    before = used.dump()
    found = findings(used.url)
    assert {name: each["state"] for name, each in found.items()} == {
        **dict.fromkeys(["credentials", "versions", "clock", "table", "stream", "namespace"], "ok"),
        **dict.fromkeys(["records", "buckets", "split buckets", "refill times"], "ok"),
        "usage": "warning",
    }
    assert "zae-limiter aggregate" in found["usage"]["fix"]
    assert used.dump() == before


def test_records_that_wait_for_a_reader_are_told(used: OwnTable) -> None:
    done = CliRunner().invoke(cli, ["aggregate", "--once", "--json", "--url", used.url])
    assert done.exit_code == 0, done.output
    name = "aggregate hourly+daily+monthly"
    assert findings(used.url)[name]["state"] == "ok"
    with SyncRepository.connect("default", url=used.url) as repository:
        take(repository)
    waiting = findings(used.url)[name]
    assert waiting["state"] == "warning"
    assert "a stream keeps records for a day" in waiting["fix"]


def test_split_buckets_and_damaged_items_are_told(used: OwnTable) -> None:
    with SyncRepository.connect("default", url=used.url) as repository:
        take(repository, "hot")
        home = BucketAddress(repository.namespace_id, "hot", "gpt-4")
        for address, bucket in run(read_all(repository.scope, home)).items():
            assert run(split_shard(repository.scope, address, bucket))
        pk = f"{repository.namespace_id}/BUCKET#key-1#gpt-4#0"
        item = {"PK": pk, "SK": "#STATE", "GSI4PK": repository.namespace_id}
        damaged = {**item, "GSI4SK": "BUCKET#key-1#gpt-4#0", "rf": "soon"}
        replace_record(repository, (pk, "#STATE"), damaged)
    found = findings(used.url, code=1)
    assert "hot/gpt-4 (2)" in found["split buckets"]["message"]
    assert "BUCKET#key-1#gpt-4#0" in found["buckets"]["message"]


def test_a_clock_that_is_wrong_is_told(store: DynamoStore) -> None:
    assert check_skew(store).state == "ok"
    now_s = time.time()
    store.table.client.clock.observe(formatdate(now_s + 3600, usegmt=True), now_s, now_s)
    found = check_skew(store)
    assert found.state == "warning"
    assert found.message == "this machine is about 3,600 s behind the server"


def test_a_table_that_does_not_exist_is_a_problem_with_a_remedy(table: OwnTable) -> None:
    found = findings(table.url.replace(table.name, "no-such-table"), code=1)
    assert "there is no such table" in found["store"]["message"]
    assert "zae-limiter deploy" in found["store"]["fix"]


def set_attribute(table: OwnTable, sort_key: str, name: str, value: dict[str, str]) -> None:
    table.call(
        "UpdateItem",
        Key={"PK": {"S": "_/SYSTEM#"}, "SK": {"S": sort_key}},
        UpdateExpression="SET #name = :value",
        ExpressionAttributeNames={"#name": name},
        ExpressionAttributeValues={":value": value},
    )


@pytest.mark.parametrize("view", [None, "KEYS_ONLY"])
def test_a_stream_that_is_off_is_told_beside_the_readers_that_miss_it(
    used: OwnTable, view: str | None
) -> None:
    done = CliRunner().invoke(cli, ["aggregate", "--once", "--url", used.url])
    assert done.exit_code == 0, done.output
    used.call("UpdateTable", StreamSpecification={"StreamEnabled": False})
    if view is not None:
        stream = {"StreamEnabled": True, "StreamViewType": view}
        used.call("UpdateTable", StreamSpecification=stream)
    found = findings(used.url, code=1)
    assert found["stream"]["state"] == "warning"
    reader = found["aggregate hourly+daily+monthly"]
    assert reader["state"] == "problem"
    assert "needs a stream" in reader["message"]
    assert found["buckets"]["state"] == "ok"


@pytest.mark.parametrize(
    ("sort_key", "name", "value", "check"),
    [
        ("#VERSION", "schema_version", {"S": "nonsense"}, "versions"),
        ("#NAMESPACE#default", "namespace_id", {"N": "8"}, "namespace"),
    ],
)
def test_a_damaged_record_of_the_table_itself_is_told_beside_the_other_checks(
    used: OwnTable, sort_key: str, name: str, value: dict[str, str], check: str
) -> None:
    set_attribute(used, sort_key, name, value)
    found = findings(used.url, code=1)
    assert found[check]["state"] == "problem"
    assert "Cannot read" in found[check]["message"]
    assert found[check]["fix"]
    assert found["table"]["state"] == "ok"


def test_an_older_schema_is_told_with_its_remedy(used: OwnTable) -> None:
    set_attribute(used, "#VERSION", "schema_version", {"S": "0.8.0"})
    found = findings(used.url, code=1)
    assert "zae-limiter migrate" in found["versions"]["fix"]


@pytest.mark.parametrize(
    ("operation", "check", "state"),
    [
        ("DescribeTable", "table", "unknown"),
        ("Query", "records", "unknown"),
        ("Query", "readers", "unknown"),
        ("GetItem", "store", "problem"),
    ],
)
def test_a_call_that_is_not_allowed_is_told_with_its_remedy(
    used: OwnTable, operation: str, check: str, state: str
) -> None:
    def refuse(request: Request) -> Any:
        denied = service_error(400, "AccessDeniedException", f"may not {request.operation}")
        return denied if request.operation == operation else Pass()

    with ChaosProxy(used.server.url) as proxy:
        proxy.use_for(refuse)
        place = f"dynamodb://{used.server.region}/{used.name}?endpoint_url={proxy.url}"
        found = findings(place, code=1 if state == "problem" else 0)
    assert found[check]["state"] == state
    assert "credentials do not allow this call" in found[check]["message"]
    assert any(word in found[check]["fix"] for word in ("permissions", "role", "credentials"))


def test_an_endpoint_that_does_not_answer_is_told_without_talk_of_deploying(
    used: OwnTable,
) -> None:
    place = f"dynamodb://{used.server.region}/{used.name}?endpoint_url=http://127.0.0.1:9"
    found = findings(place, code=1)
    assert "Connection refused" in found["store"]["message"]
    assert "answers from here" in found["store"]["fix"]
