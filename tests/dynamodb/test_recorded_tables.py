"""Tables that older versions of PyPI's zae-limiter wrote are migrated.

The records in `tests/support/old_tables_recorded` were written by running each version: entities
`acme` and `key-1` below it, limits of `key-1` for `gpt-4` and for all resources, defaults where the
version has them, and one acquire of 3 `rpm` and 100 `tpm` for `key-1` and for `solo`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.dynamodb import new_name
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable, table_client, wait_until_active
from zae_limiter import (
    IncompatibleSchemaError,
    Limit,
    RateLimitExceeded,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.backends.dynamodb.schema import get_table_definition
from zae_limiter.cli import cli

RECORDED = sorted((Path(__file__).parents[1] / "support" / "old_tables_recorded").glob("*.json"))
RPM, TPM = Limit.per_day("rpm", 10), Limit("tpm", 2000, 1000, 86_400)


def renewed(value: Any, now_ms: int) -> Any:
    """The value with the times of buckets moved to now, so that nothing has refilled since."""
    if not isinstance(value, dict):
        return value
    times = {"rf": now_ms, "last_refill_ms": now_ms, "ttl": now_ms // 1000 + 86_400}
    return {
        name: {"N": str(times[name])} if name in times else renewed(inner, now_ms)
        for name, inner in value.items()
    }


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def table(request: pytest.FixtureRequest, dynamodb: Server) -> Iterator[OwnTable]:
    """The table of an older version, with the indexes that it had."""
    recorded = json.loads(request.param.read_text(encoding="utf-8"))
    with table_client(dynamodb) as client:
        made = OwnTable(new_name(), dynamodb, client)
        definition = get_table_definition(made.name)
        indexes = definition["GlobalSecondaryIndexes"]
        known = [index for index in indexes if index["IndexName"] in recorded["indexes"]]
        keys = {k["AttributeName"] for i in known for k in i["KeySchema"]} | {"PK", "SK"}
        definition["GlobalSecondaryIndexes"] = known
        definition["AttributeDefinitions"] = [
            each for each in definition["AttributeDefinitions"] if each["AttributeName"] in keys
        ]
        del definition["TableName"]
        made.call("CreateTable", **definition)
        wait_until_active(made)
        now_ms = client.io.now_ms()
        for item in recorded["items"]:
            made.call("PutItem", Item=renewed(item, now_ms))
        yield made
        made.call("DeleteTable")


def test_a_table_of_an_older_version_is_migrated_and_used(table: OwnTable) -> None:
    with pytest.raises(IncompatibleSchemaError):
        SyncRepository.open(url=table.url)
    done = CliRunner().invoke(cli, ["migrate", "--url", table.url, "--yes"])
    assert done.exit_code == 0, done.output
    described = table.call("DescribeTable")["Table"]["GlobalSecondaryIndexes"]
    assert {index["IndexName"] for index in described} == {"GSI1", "GSI2", "GSI3", "GSI4"}
    assert all("/" in item["PK"]["S"] for item in table.items())
    with SyncRepository.connect(url=table.url) as repository:
        limiter = SyncRateLimiter(repository)
        check_records(limiter)
        check_balances(limiter)


def check_records(limiter: SyncRateLimiter) -> None:
    acme = limiter.get_entity("acme")
    assert acme is not None
    assert (acme.name, acme.metadata) == ("Acme", {"tier": "gold"})
    assert [child.id for child in limiter.get_children("acme")] == ["key-1"]
    assert limiter.get_limits("key-1", "gpt-4") == [RPM, TPM]
    assert limiter.get_limits("key-1") == [RPM]
    assert limiter.list_entities_with_custom_limits("gpt-4") == (["key-1"], None)
    defaults = limiter.get_resource_defaults("gpt-4")
    assert limiter.list_resources_with_defaults() == (["gpt-4"] if defaults else [])
    assert defaults in ([], [RPM, TPM])
    actions = [event.action for event in limiter.get_audit_events("key-1")]
    assert actions[-1] == "entity_created"
    # Two of then and, where limits were moved, two of the migration.
    assert actions.count("limits_set") in (2, 4)


def check_balances(limiter: SyncRateLimiter) -> None:
    assert limiter.available("solo", "gpt-4", [RPM, TPM]) == {"rpm": 7, "tpm": 1900}
    if limiter.get_children("acme")[0].cascade:
        assert limiter.available("acme", "gpt-4", [RPM, TPM]) == {"rpm": 7, "tpm": 1900}
    with limiter.acquire("key-1", "gpt-4", {"rpm": 7, "tpm": 1900}):
        pass
    with pytest.raises(RateLimitExceeded), limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
