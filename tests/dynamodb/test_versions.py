"""The versions of a table are compared with the client's when a repository is opened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.dynamodb import new_name, replace_record
from tests.support.servers.processes import Server
from zae_limiter import (
    IncompatibleSchemaError,
    LimiterConfig,
    StoredDataError,
    SyncRepository,
    VersionMismatchError,
    __version__,
)
from zae_limiter.cli import cli

Open = Callable[..., SyncRepository]
RECORD = ("_/SYSTEM#", "#VERSION")


@pytest.fixture
def place(dynamodb: Server) -> dict[str, str]:
    return {"stack": new_name(), "region": dynamodb.region, "endpoint_url": dynamodb.url}


@pytest.fixture
def admin(place: dict[str, Any]) -> Iterator[SyncRepository]:
    """A repository that was opened before the version record changed."""
    with SyncRepository.open(**place) as repository:
        yield repository
        repository.delete_table()


@pytest.fixture
def connect(place: dict[str, Any]) -> Open:
    return lambda **options: SyncRepository.connect(**place, **options)


def run(place: dict[str, str], command: str, *options: str) -> Result:
    target = ("-n", place["stack"], "--region", place["region"])
    args = [command, *target, "--endpoint-url", place["endpoint_url"], *options]
    return CliRunner().invoke(cli, args, env={"ZAEL_URL": None})


def test_a_new_table_is_of_the_client_s_schema(admin: SyncRepository, connect: Open) -> None:
    record = admin.get_version_record()
    assert record is not None
    assert (record["schema_version"], record["client_min_version"]) == ("0.10.0", "0.0.0")
    connect().close()


def test_a_table_of_an_older_schema_is_refused_with_what_to_do(
    admin: SyncRepository, place: dict[str, Any]
) -> None:
    admin.set_version_record("0.5.0")
    for opening in (SyncRepository.open, SyncRepository.connect):
        with pytest.raises(IncompatibleSchemaError, match="zae-limiter migrate") as refused:
            opening(**place)
        assert refused.value.schema_version == "0.5.0"
        assert refused.value.client_version == __version__


def test_a_table_that_wants_newer_clients_is_refused(admin: SyncRepository, connect: Open) -> None:
    admin.set_version_record("0.10.0", client_min_version="99.0.0")
    with pytest.raises(VersionMismatchError, match=r"99\.0\.0.*upgrade the client") as refused:
        connect()
    assert refused.value.client_version == __version__
    admin.set_version_record("1.0.0")
    with pytest.raises(VersionMismatchError, match=r"schema 1\.0\.0 is newer"):
        connect()


def test_a_version_that_cannot_be_read_is_reported(admin: SyncRepository, connect: Open) -> None:
    admin.set_version_record("ten")
    with pytest.raises(StoredDataError, match="'ten' is no version"):
        connect()


def test_an_older_lambda_is_reported_unless_the_caller_minds(
    admin: SyncRepository, place: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    admin.set_version_record("0.10.0", lambda_version="0.17.0")
    with caplog.at_level(logging.INFO, "zae_limiter"):
        SyncRepository.open(**place).close()
    assert "Lambda 0.17.0 is older than client" in caplog.text
    with pytest.raises(VersionMismatchError, match="zae-limiter upgrade") as refused:
        SyncRepository.open(**place, auto_update=False)
    assert refused.value.lambda_version == "0.17.0"
    assert refused.value.can_auto_update
    with (
        SyncRepository.builder()
        .stack(place["stack"])
        .region(place["region"])
        .endpoint_url(place["endpoint_url"])
        .auto_update()
        .build() as repository
    ):
        assert repository.ping()


def test_a_table_that_uses_features_of_the_existing_package_is_warned_of(
    admin: SyncRepository, connect: Open, caplog: pytest.LogCaptureFixture
) -> None:
    for oldest, warned in (("0.14.0", False), ("0.16.0", True), ("0.17.0", True)):
        admin.set_version_record("0.10.0", client_min_version=oldest)
        caplog.clear()
        connect().close()
        assert ("does not heed" in caplog.text) is warned, oldest


def test_the_stored_wish_for_updates_counts_unless_the_caller_has_one(
    admin: SyncRepository, place: dict[str, Any]
) -> None:
    admin.set_version_record("0.10.0", lambda_version="0.17.0")
    admin.set_config("system", LimiterConfig(auto_update=False))
    with pytest.raises(VersionMismatchError):
        SyncRepository.open(**place)
    SyncRepository.open(**place, auto_update=True).close()


@pytest.mark.parametrize(
    ("schema", "function"), [("0.10.1", None), ("0.10.0", "0.17.0"), ("0.10.0", "99.0.0")]
)
def test_any_difference_is_an_error_where_strict_versions_are_stored(
    schema: str, function: str | None, admin: SyncRepository, place: dict[str, Any], connect: Open
) -> None:
    admin.set_version_record(schema, lambda_version=function)
    connect().close()
    admin.set_config("system", LimiterConfig(strict_version=True))
    for opening in (SyncRepository.open, SyncRepository.connect):
        with pytest.raises(VersionMismatchError, match=place["stack"]):
            opening(**place)
    admin.set_version_record("0.10.0", lambda_version=__version__)
    connect().close()


NESTED: dict[str, Any] = {"data": {"schema_version": "0.4.0", "client_min_version": "0.1.0"}}
FLAT: dict[str, Any] = {"schema_version": "0.4.0", "lambda_version": None}


@pytest.mark.parametrize("fields", [NESTED, FLAT], ids=["nested", "flat"])
def test_the_version_record_of_an_old_table_is_found(
    fields: dict[str, Any], admin: SyncRepository, place: dict[str, Any], connect: Open
) -> None:
    old = {"PK": "SYSTEM#", "SK": "#VERSION", **fields}
    replace_record(admin, RECORD, old)
    record = admin.get_version_record()
    assert record is not None
    assert record["schema_version"] == "0.4.0"
    with pytest.raises(IncompatibleSchemaError, match=r"schema 0\.4\.0 is older"):
        connect()


def test_a_table_without_a_version_record_is_used(admin: SyncRepository, connect: Open) -> None:
    replace_record(admin, RECORD)
    assert admin.get_version_record() is None
    connect().close()


@pytest.mark.parametrize(
    ("schema", "function", "oldest", "status", "code"),
    [
        ("0.10.0", None, None, "COMPATIBLE", 0),
        ("0.10.0", "0.17.0", None, "COMPATIBLE (Lambda update available)", 0),
        ("0.9.0", None, None, "COMPATIBLE (migration under way)", 0),
        ("0.5.0", None, None, "INCOMPATIBLE", 1),
        ("0.10.0", None, "99.0.0", "INCOMPATIBLE", 1),
    ],
)
def test_commands_say_whether_client_and_table_go_together(
    schema: str,
    function: str | None,
    oldest: str | None,
    status: str,
    code: int,
    admin: SyncRepository,
    place: dict[str, str],
) -> None:
    admin.set_version_record(schema, function, oldest)
    checked = run(place, "check")
    assert checked.exit_code == code
    assert checked.stdout.splitlines()[0] == f"Result: {status}"
    shown = run(place, "version")
    assert shown.exit_code == code
    assert f"Status:               {status}" in shown.stdout
    assert f"Schema of the table:  {schema}" in shown.stdout
    if schema == "0.5.0":
        assert "stop all clients of older versions" in checked.stdout
    told = run(place, "version", "--json")
    assert f'"schema_version": "{schema}"' in told.stdout


def test_a_table_without_a_version_record_is_not_initialized(
    admin: SyncRepository, place: dict[str, str]
) -> None:
    replace_record(admin, RECORD)
    found = run(place, "check")
    assert found.exit_code == 1
    assert found.stdout.startswith("Result: NOT INITIALIZED")


@pytest.mark.parametrize(
    ("schema", "oldest", "message"),
    [
        ("1.0.0", None, "is newer than"),
        ("0.10.0", "99.0.0", "the oldest that the table lets in"),
        ("0.9.0", "99.0.0", "the oldest that the table lets in"),
        ("garbage", None, "Cannot read the version record"),
    ],
)
def test_a_table_of_newer_clients_is_not_migrated(
    schema: str, oldest: str | None, message: str, admin: SyncRepository, place: dict[str, str]
) -> None:
    admin.set_version_record(schema, None, oldest)
    for option in ("--dry-run", "--yes"):
        refused = run(place, "migrate", option)
        assert refused.exit_code == 1
        assert message in refused.stderr
