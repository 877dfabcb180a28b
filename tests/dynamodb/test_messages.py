"""What users are told when something is wrong with their table, their credentials or their data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.support.drivers import (
    Driver,
    balance,
    connect_repository,
    limiter_on,
    open_repository,
    stranger,
)
from tests.support.dynamodb import new_name
from tests.support.servers.chaos import ChaosProxy, service_error
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable
from zae_limiter import (
    InfrastructureNotFoundError,
    Limit,
    RateLimiterUnavailable,
    Repository,
    StorageUnavailable,
    StoredDataError,
    StoredDataWarning,
    ValidationError,
)
from zae_limiter.backends.dynamodb.wire.values import to_attribute
from zae_limiter.testing import ManualClock

LIMITS = [Limit.per_minute("rpm", 100), Limit.per_hour("tpm", 1000)]
AWS = "http://dynamodb.us-east-1.amazonaws.com"


@pytest.fixture(params=["asyncio", "blocking"])
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture
def place(dynamodb: Server) -> dict[str, Any]:
    return {"stack": new_name(), "region": dynamodb.region, "endpoint_url": dynamodb.url}


async def test_a_missing_table_is_named_with_the_ways_to_make_it(
    facade: Driver, place: dict[str, Any]
) -> None:
    with pytest.raises(InfrastructureNotFoundError) as raised:
        await connect_repository(facade, **place)
    told = str(raised.value)
    for part in (
        place["stack"],
        place["region"],
        f"`zae-limiter deploy --name {place['stack']} ",
        "create=True",
    ):
        assert part in told
    assert raised.value.stack_name == place["stack"]


async def test_a_table_in_another_region_is_missing_here(
    facade: Driver, proxy: ChaosProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy.url)
    with pytest.raises(InfrastructureNotFoundError, match="region us-east-1"):
        await open_repository(facade, stack=new_name(), region="us-east-1", endpoint_url=AWS)


async def test_a_region_that_does_not_exist_is_doubted(facade: Driver) -> None:
    with pytest.raises(StorageUnavailable, match=r"Is this the right region\?"):
        await open_repository(facade, stack="limits", region="us-est-1")


async def test_no_region_at_all_is_bad_input(facade: Driver) -> None:
    with pytest.raises(ValidationError, match="AWS_REGION") as raised:
        await open_repository(facade, stack="limits")
    assert raised.value.field == "region"


async def test_without_credentials_it_is_said_where_they_go(
    facade: Driver, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID") as raised:
        await open_repository(facade, **place)
    assert not raised.value.retryable


REFUSALS = {
    "ExpiredTokenException": "The AWS credentials have expired: sign in again or renew them",
    "AccessDeniedException": "The credentials do not allow this call: check the policy",
    "UnrecognizedClientException": "AWS does not know these credentials: check the access key",
    "InvalidSignatureException": "AWS did not accept the signature: check secret key, region",
}


@pytest.mark.parametrize("code", REFUSALS)
async def test_whoever_is_not_let_in_is_told_why(
    facade: Driver, place: dict[str, Any], proxy: ChaosProxy, code: str
) -> None:
    """When the store is opened, when something is changed, and when something is acquired."""
    no = service_error(400, code, "as the service puts it")
    proxy.use([no])
    through = {**place, "endpoint_url": proxy.url}
    with pytest.raises(StorageUnavailable, match=REFUSALS[code]) as raised:
        await open_repository(facade, **through)
    assert place["stack"] in str(raised.value)
    assert "as the service puts it" in str(raised.value)
    repository = await open_repository(facade, **through)
    await repository.set_system_defaults(LIMITS)
    proxy.use([no])
    with pytest.raises(StorageUnavailable, match=REFUSALS[code]):
        await repository.set_limits("key", LIMITS)
    proxy.use([no])
    with pytest.raises(RateLimiterUnavailable, match=REFUSALS[code]) as refused:
        async with limiter_on(repository).acquire("key", "gpt-4", {"rpm": 1}):
            pass
    assert not isinstance(refused.value, StorageUnavailable)
    assert (refused.value.stack_name, refused.value.entity_id) == (place["stack"], "key")
    await repository.close()


async def test_a_table_that_was_deleted_meanwhile_is_named(
    facade: Driver, place: dict[str, Any]
) -> None:
    repository = await open_repository(facade, **place)
    store: Any = repository.scope.store
    await store.delete_table()
    with pytest.raises(StorageUnavailable, match=f"There is no table {place['stack']}"):
        await repository.get_entity("key")
    assert not await repository.ping()
    await repository.close()


@pytest.fixture
async def repository(facade: Driver, table: OwnTable) -> AsyncIterator[Repository]:
    """Two keys with buckets and limits of their own."""
    opened = await open_repository(facade, url=table.url, clock=ManualClock())
    for entity_id in ("bad", "good"):
        await opened.create_entity(entity_id)
        await opened.set_limits(entity_id, LIMITS, "gpt-4")
        async with limiter_on(opened).acquire(entity_id, "gpt-4", {"rpm": 1, "tpm": 1}):
            pass
    yield opened
    await opened.close()


Use = Callable[[], Awaitable[Any]]


def damage(table: OwnTable, ends_with: tuple[str, str], **changes: Any) -> str:
    """Change a record by hand: None removes an attribute. Returns the record's key."""
    (item,) = [
        item
        for item in table.items()
        if item["PK"]["S"].endswith(ends_with[0]) and item["SK"]["S"] == ends_with[1]
    ]
    changed = {name: value for name, value in item.items() if name not in changes}
    changed |= {name: _attribute(v) for name, v in changes.items() if v is not None}
    table.call("PutItem", Item=changed)
    return str(item["PK"]["S"])


def _attribute(value: Any) -> dict[str, Any]:
    return {"N": str(value)} if isinstance(value, float) else to_attribute(value)


BUCKET = ("BUCKET#bad#gpt-4#0", "#STATE")
BAD_BUCKETS: dict[str, tuple[dict[str, Any], str]] = {
    "no refill time": ({"rf": None}, "rf"),
    "a refill time in words": ({"rf": "yesterday"}, "rf"),
    "no tokens": ({"b_rpm_tk": None}, "b_rpm_tk"),
    "tokens in words": ({"b_rpm_tk": "many"}, "b_rpm_tk"),
    "vast debts": ({"b_rpm_tk": -(10**37)}, "b_rpm_tk"),
    "a vast counter": ({"b_rpm_tc": 10**37}, "b_rpm_tc"),
    "a vast remainder": ({"b_rpm_rm": -(10**37)}, "b_rpm_rm"),
    "a vast capacity": ({"b_rpm_cp": 10**37}, "b_rpm_cp"),
    "a vast refill time": ({"rf": 10**37}, "rf"),
    "half a millitoken": ({"b_rpm_tk": 1.5}, "b_rpm_tk"),
    "no capacity": ({"b_tpm_cp": None}, "b_tpm_cp"),
    "no period": ({"b_tpm_rp": 0}, "b_tpm_rp"),
    "no refill": ({"b_rpm_ra": 0}, "b_rpm_ra"),
    "no shards": ({"shard_count": 0}, "shard"),
    "too many shards": ({"shard_count": 64}, "shard"),
    "an odd number of shards": ({"shard_count": 3}, "shard"),
    "shards in words": ({"shard_count": "two"}, "shard_count"),
    "a count of acquires in words": ({"ac": "few"}, "ac"),
    "a fingerprint that is a number": ({"cv": 7}, "cv"),
    "an operation that is a number": ({"lo": 7}, "is '7', not text"),
    "an end of life in words": ({"ttl": "soon"}, "ttl"),
    "a cascade in words": ({"cascade": "yes"}, "cascade"),
}


@pytest.mark.parametrize("what", BAD_BUCKETS)
async def test_a_bucket_that_cannot_be_read_is_named_and_others_work(
    repository: Repository, table: OwnTable, what: str
) -> None:
    changes, attribute = BAD_BUCKETS[what]
    record = damage(table, BUCKET, **changes)
    limiter = limiter_on(repository)
    uses: list[Use] = [
        lambda: repository.get_bucket("bad", "gpt-4", "rpm"),
        lambda: repository.get_buckets("bad", "gpt-4"),
        lambda: limiter.available("bad", "gpt-4"),
        lambda: take(limiter, "bad"),
    ]
    for use in uses:
        with pytest.raises(StoredDataError) as raised:
            await use()
        assert record in str(raised.value)
        assert attribute in str(raised.value)
    await take(limiter, "good")
    assert await balance(repository, "good") == {"rpm": 98_000, "tpm": 998_000}


@pytest.mark.parametrize("limit", ["rpm", "wcu"])
async def test_a_bucket_that_lacks_a_limit_gets_it_back(
    repository: Repository, table: OwnTable, limit: str
) -> None:
    """Whoever took it away: for those who saw the bucket before, and for those who did not."""
    attributes = [f"b_{limit}_{field}" for field in ("tk", "cp", "ra", "rp", "tc", "rm")]
    for limiter in (limiter_on(repository), limiter_on(stranger(repository))):
        damage(table, BUCKET, **dict.fromkeys(attributes))
        for _ in range(2):
            await take(limiter, "bad")
    assert (await balance(repository, "bad"))["tpm"] == 1_000_000 - 5 * 1_000


@pytest.mark.parametrize("what", BAD_BUCKETS)
async def test_a_bucket_that_cannot_be_read_is_left_out_of_lists_and_named(
    repository: Repository, table: OwnTable, what: str
) -> None:
    changes, attribute = BAD_BUCKETS[what]
    record = damage(table, BUCKET, **changes)
    lists: list[Use] = [
        lambda: repository.get_buckets("bad"),
        lambda: repository.get_resource_buckets("gpt-4"),
        lambda: limiter_on(repository).get_resource_capacity("gpt-4", "rpm"),
    ]
    found = []
    for listing in lists:
        with pytest.warns(StoredDataWarning) as told:
            found.append(await listing())
        (warning,) = [each.message for each in told]
        assert isinstance(warning, StoredDataWarning)
        assert record in warning.record
        assert attribute in warning.reason
    of_entity, of_resource, capacity = found
    assert of_entity == []
    assert {state.entity_id for state in of_resource} == {"good"}
    assert [entity.entity_id for entity in capacity.entities] == ["good"]


async def take(limiter: Any, entity_id: str) -> None:
    async with limiter.acquire(entity_id, "gpt-4", {"rpm": 1, "tpm": 1}):
        pass


OWN_LIMITS = ("ENTITY#bad", "#CONFIG#gpt-4")
BAD_LIMITS: dict[str, dict[str, Any]] = {
    "no capacity": {"l_rpm_cp": None},
    "a capacity in words": {"l_rpm_cp": "much"},
    "a capacity below zero": {"l_rpm_cp": -5},
    "no period": {"l_tpm_rp": 0},
    "a version in words": {"config_version": "latest"},
}


@pytest.mark.parametrize("what", BAD_LIMITS)
async def test_limits_that_cannot_be_read_are_named_and_others_work(
    repository: Repository, table: OwnTable, what: str
) -> None:
    record = damage(table, OWN_LIMITS, **BAD_LIMITS[what])
    await repository.invalidate_config_cache()
    limiter = limiter_on(repository)
    uses: list[Use] = [
        lambda: take(limiter, "bad"),
        lambda: limiter.available("bad", "gpt-4"),
        lambda: repository.get_limits("bad", "gpt-4"),
    ]
    for use in uses:
        with pytest.raises(StoredDataError, match=f"{record} {OWN_LIMITS[1]}"):
            await use()
    await take(limiter, "good")
    assert await balance(repository, "good") == {"rpm": 98_000, "tpm": 998_000}


META = ("ENTITY#bad", "#META")
BAD_ENTITIES: dict[str, dict[str, Any]] = {
    "a parent that is a number": {"parent_id": 5},
    "a cascade in words": {"cascade": "yes"},
    "a version in words": {"version": "first"},
}


@pytest.mark.parametrize("what", BAD_ENTITIES)
async def test_an_entity_that_cannot_be_read_is_named_and_others_work(
    repository: Repository, table: OwnTable, what: str
) -> None:
    record = damage(table, META, **BAD_ENTITIES[what])
    await repository.invalidate_config_cache()
    limiter = limiter_on(repository)
    uses: list[Use] = [
        lambda: take(limiter, "bad"),
        lambda: repository.get_entity("bad"),
        lambda: repository.update_entity("bad", name="better"),
    ]
    for use in uses:
        with pytest.raises(StoredDataError, match=f"{record} {META[1]}"):
            await use()
    await take(limiter, "good")
    assert await repository.get_entity("good") is not None


async def test_a_record_that_cannot_be_read_can_be_replaced(
    repository: Repository, table: OwnTable
) -> None:
    limiter = limiter_on(repository)
    damage(table, OWN_LIMITS, l_rpm_cp="much")
    await repository.set_limits("bad", LIMITS, "gpt-4")
    await take(limiter, "bad")
    damage(table, BUCKET, rf="yesterday")
    await repository.delete_entity("bad")
    await repository.set_limits("bad", LIMITS, "gpt-4")
    await take(limiter, "bad")
    assert await balance(repository, "bad") == {"rpm": 99_000, "tpm": 999_000}
