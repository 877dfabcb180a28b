"""Opening a store: what is made, and what is said when it cannot be reached."""

from __future__ import annotations

import pytest

from tests.support.dynamodb import Runner, new_name, open_store
from tests.support.servers.chaos import ChaosProxy, closed_door, service_error
from tests.support.servers.processes import Server
from zae_limiter.backends.dynamodb.lifecycle import describe_dynamo_table
from zae_limiter.backends.dynamodb.opening import Creation, find_site
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.table import Table
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.credentials import Access
from zae_limiter.core.exceptions import (
    InfrastructureNotFoundError,
    StorageUnavailable,
    StoredDataError,
    ValidationError,
)
from zae_limiter.ports.deployment import VersionRecord

AWS = "http://dynamodb.us-east-1.amazonaws.com"


@pytest.fixture
def aws(proxy: ChaosProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of AWS, behind which the test server answers."""
    monkeypatch.setenv("http_proxy", proxy.url)
    return AWS


def exists(driver: Runner, server: Server, name: str) -> bool:
    client = open_client(
        driver.io, blocking=driver.blocking, region=server.region, endpoint_url=server.url
    )
    described = driver.run(describe_dynamo_table(Table(client, name)))
    driver.run(client.close())
    return described is not None


@pytest.mark.parametrize("create", ["elsewhere", "always"])
def test_a_missing_table_is_made_on_a_server_of_ones_own(
    driver: Runner, dynamodb: Server, create: Creation
) -> None:
    store = driver.run(open_store(dynamodb, new_name(), driver.io, create=create))
    driver.run(store.ping())
    record = driver.run(store.versions.read())
    assert (record.schema_version, record.client_min_version) == ("0.10.0", "0.0.0")
    again = driver.run(open_store(dynamodb, store.table.name, driver.io, create="never"))
    driver.run(again.close())
    driver.run(store.delete_table())
    driver.run(store.close())


def test_a_missing_table_at_aws_is_made_only_on_request(
    driver: Runner, dynamodb: Server, aws: str
) -> None:
    name = new_name()
    for create in ("never", "elsewhere"):
        with pytest.raises(InfrastructureNotFoundError) as raised:
            driver.run(open_store(dynamodb, name, driver.io, url=aws, create=create))
        assert raised.value.stack_name == name
        for told in (
            name,
            "region us-east-1",
            f"`zae-limiter deploy --name {name} ",
            "create=True",
        ):
            assert told in str(raised.value)
        assert not exists(driver, dynamodb, name)
    store = driver.run(open_store(dynamodb, name, driver.io, url=aws, create="always"))
    assert exists(driver, dynamodb, name)
    driver.run(store.delete_table())
    driver.run(store.close())


def test_nothing_is_made_when_nothing_may_be(driver: Runner, dynamodb: Server) -> None:
    name = new_name()
    with pytest.raises(InfrastructureNotFoundError, match="zae-limiter deploy"):
        driver.run(open_store(dynamodb, name, driver.io, create="never"))
    assert not exists(driver, dynamodb, name)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("ExpiredTokenException", "The AWS credentials have expired"),
        ("AccessDeniedException", "The credentials do not allow this call"),
        ("UnrecognizedClientException", "AWS does not know these credentials"),
        ("InvalidSignatureException", "check secret key, region and clock"),
    ],
)
def test_each_refusal_has_a_message_of_its_own(
    driver: Runner, dynamodb: Server, proxy: ChaosProxy, code: str, told: str
) -> None:
    proxy.use([service_error(400, code, "details of the service")] * 9)
    name = new_name()
    with pytest.raises(StorageUnavailable) as raised:
        driver.run(open_store(dynamodb, name, driver.io, url=proxy.url))
    for part in (name, f"region {dynamodb.region}", told, "details of the service"):
        assert part in str(raised.value)
    assert not raised.value.retryable
    assert not raised.value.ambiguous


def test_a_region_that_does_not_exist_is_doubted(driver: Runner, dynamodb: Server) -> None:
    with pytest.raises(StorageUnavailable, match=r"Is this the right region\?") as raised:
        driver.run(
            DynamoStore.open("limits", driver.io, blocking=driver.blocking, region="us-est-1")
        )
    assert "dynamodb.us-est-1.amazonaws.com (region us-est-1)" in str(raised.value)


def test_an_endpoint_where_nobody_listens_is_named(driver: Runner, dynamodb: Server) -> None:
    with closed_door() as url, pytest.raises(StorageUnavailable) as raised:
        driver.run(open_store(dynamodb, "limits", driver.io, url=url))
    assert url.removeprefix("http://") in str(raised.value)
    assert "right region" not in str(raised.value)


def test_missing_credentials_and_region_are_asked_for(
    driver: Runner, dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValidationError, match="AWS_REGION"):
        driver.run(DynamoStore.open("limits", driver.io, blocking=driver.blocking))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID"):
        driver.run(open_store(dynamodb, "limits", driver.io))


def test_a_table_of_someone_else_is_left_alone(driver: Runner, dynamodb: Server) -> None:
    client = open_client(
        driver.io, blocking=driver.blocking, region=dynamodb.region, endpoint_url=dynamodb.url
    )
    name = new_name()
    attribute = {"AttributeName": "id", "AttributeType": "S"}
    request = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [attribute],
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    }
    driver.run(client.call("CreateTable", request))
    with pytest.raises(StoredDataError, match=f"table {name}: it is not a limiter's"):
        driver.run(open_store(dynamodb, name, driver.io))
    driver.run(client.call("DeleteTable", {"TableName": name}))
    driver.run(client.close())


@pytest.mark.parametrize(
    ("region", "endpoint_url", "is_aws"),
    [
        ("us-east-1", None, True),
        ("cn-north-1", None, True),
        ("us-gov-west-1", None, True),
        ("us-iso-east-1", None, True),
        ("eu-west-1", "https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com", True),
        ("eu-west-1", "https://dynamodb.eu-west-1.api.aws:443", True),
        ("eu-west-1", "http://localhost:8000", False),
        ("eu-west-1", "http://[::1]:8000", False),
        ("eu-west-1", "https://amazonaws.com.example.org", False),
        ("eu-west-1", "https://notamazonaws.com", False),
    ],
)
def test_aws_is_known_by_its_domains(region: str, endpoint_url: str | None, is_aws: bool) -> None:
    site = find_site(Access(region, endpoint_url))
    assert (site.region, site.is_aws) == (region, is_aws)


def test_an_endpoint_of_the_environment_counts(
    driver: Runner, dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.url)
    monkeypatch.setenv("AWS_REGION", dynamodb.region)
    opening = DynamoStore.open(new_name(), driver.io, blocking=driver.blocking, create="elsewhere")
    store = driver.run(opening)
    assert exists(driver, dynamodb, store.table.name)
    driver.run(store.delete_table())
    driver.run(store.close())


def test_versions_are_replaced_but_introduced_once(store: DynamoStore, driver: Runner) -> None:
    versions = store.versions
    driver.run(versions.introduce(VersionRecord("9.9.9")))
    assert driver.run(versions.read()).schema_version == "0.10.0"
    wanted = VersionRecord("1.0.0", "0.17.0", "0.5.0", updated_by="deploy")
    driver.run(versions.write(wanted))
    found = driver.run(versions.read())
    assert (found.schema_version, found.lambda_version) == ("1.0.0", "0.17.0")
    assert (found.client_min_version, found.updated_by) == ("0.5.0", "deploy")
    assert found.updated_at.endswith("Z")
