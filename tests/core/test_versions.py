"""Versions are read, ordered and compared."""

from __future__ import annotations

import pytest

from zae_limiter.core.versions import (
    CURRENT_SCHEMA_VERSION,
    InfrastructureVersion,
    check_compatibility,
    get_schema_version,
    parse_version,
)

ORDERED = ["0.0.0", "0.9.9", "0.10.0.dev3", "0.10.0-rc1", "v0.10.0", "0.10.1+local", "1.0", "1.0.1"]


def test_versions_are_ordered_with_stages_before_releases() -> None:
    parsed = [parse_version(text) for text in ORDERED]
    assert parsed == sorted(parsed)
    assert len(set(parsed)) == len(parsed)
    assert [str(each) for each in parsed][2:5] == ["0.10.0-dev3", "0.10.0-rc1", "0.10.0"]


@pytest.mark.parametrize("text", ["", "1", "a.b.c", "1.x", "1.2.3.4 5", "1." + "9" * 50])
def test_a_text_that_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        parse_version(text)


@pytest.mark.parametrize(
    ("client", "schema", "function", "oldest", "expected"),
    [
        ("0.18.0", "0.10.0", None, "0.0.0", "usable"),
        ("0.18.0", "0.10.0", "0.18.0", "0.18.0", "usable"),
        ("0.18.0", "0.10.0", "0.19.0", "0.0.0", "usable"),
        ("0.18.0", "0.11.0", None, "0.0.0", "usable"),
        ("0.18.0", "0.9.0", None, "0.0.0", "usable"),
        ("0.18.0", "0.10.0", "0.17.0", "0.0.0", "lambda"),
        ("0.18.0", "0.10.0", "0.18.0.dev1", "0.0.0", "usable"),
        ("0.18.0", "0.8.0", None, "0.0.0", "schema"),
        ("0.18.0", "0.0.1", "0.17.0", "0.0.0", "schema"),
        ("0.18.0", "1.0.0", None, "0.0.0", "client"),
        ("0.18.0", "0.10.0", None, "0.19.0", "client"),
        ("0.18.0", "0.5.0", None, "0.19.0", "client"),
    ],
)
def test_a_client_is_compared_with_a_deployment(
    client: str, schema: str, function: str | None, oldest: str, expected: str
) -> None:
    found = check_compatibility(client, InfrastructureVersion(schema, function, None, oldest))
    told = {
        "lambda": found.requires_lambda_update,
        "schema": found.requires_schema_migration,
        "client": found.requires_client_upgrade,
    }
    assert [name for name, needed in told.items() if needed] == [expected] * (expected != "usable")
    assert found.is_compatible is (expected in ("usable", "lambda"))
    assert bool(found.message) is (expected != "usable")
    if expected == "schema":
        assert "stop all clients of older versions" in found.message
        assert schema in found.message


def test_the_current_schema_is_the_one_that_is_written() -> None:
    assert get_schema_version() == CURRENT_SCHEMA_VERSION == "0.10.0"
