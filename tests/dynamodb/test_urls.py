"""Stacks by URL, by argument and by environment: what is chosen, and what is refused."""

from __future__ import annotations

from typing import cast

import pytest

from zae_limiter import SyncRepository
from zae_limiter.backends.dynamodb.url import DynamoUrl, dynamodb_url
from zae_limiter.backends.urls import parse_url
from zae_limiter.core.exceptions import ValidationError
from zae_limiter.core.validation import validate_stack_name
from zae_limiter.opening import OpenOptions, check_opening

LOCAL = "http://localhost:8000/path?a=b&c#d"


@pytest.mark.parametrize(
    ("region", "endpoint_url"),
    [("us-east-1", None), (None, None), ("eu-west-1", LOCAL), (None, "http://[::1]:8000")],
)
def test_a_url_brings_back_what_it_was_made_of(
    region: str | None, endpoint_url: str | None
) -> None:
    text = dynamodb_url("my-stack", region, endpoint_url)
    found = parse_url(text)
    assert found == DynamoUrl(text, region, endpoint_url, stack="my-stack")
    assert (found.name, found.is_embedded) == ("my-stack", False)


def test_the_documented_forms() -> None:
    assert parse_url("dynamodb://us-east-1/my-stack").region == "us-east-1"
    text = "dynamodb://us-east-1/my-stack?endpoint_url=http%3A%2F%2Flocalhost%3A8000"
    assert parse_url(text).endpoint_url == "http://localhost:8000"
    assert parse_url("dynamodb:///my-stack").region is None
    patient = parse_url("dynamodb:///my-stack?connect_timeout=0.5&read_timeout=2")
    assert isinstance(patient, DynamoUrl)
    assert (patient.connect_timeout, patient.read_timeout) == (0.5, 2)
    assert parse_url("sqlite:///limits.db").name == "sqlite:///limits.db"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("dynamodb://us-east-1", "url"),
        ("dynamodb://us-east-1/", "url"),
        ("dynamodb://us-east-1/my-stack?endpoint=x", "url"),
        ("dynamodb://us-east-1/my-stack?endpoint_url=x&endpoint_url=y", "url"),
        ("dynamodb://us-east-1/my-stack?read_timeout=1&read_timeout=1", "url"),
        ("dynamodb://us-east-1/my-stack?read_timeout=soon", "read_timeout"),
        ("dynamodb://us-east-1/my-stack?read_timeout=", "read_timeout"),
        ("dynamodb://us-east-1/my-stack?read_timeout=0", "read_timeout"),
        ("dynamodb://us-east-1/my-stack?connect_timeout=nan", "connect_timeout"),
        ("dynamodb://us-east-1/my-stack?connect_timeout=301", "connect_timeout"),
        ("dynamodb://us-east-1/my-stack#part", "url"),
        ("dynamodb://US_EAST/my-stack", "region"),
        ("dynamodb://user@us-east-1/my-stack", "region"),
        ("dynamodb://us-east-1:8000/my-stack", "region"),
        ("dynamodb://us-east-1/my_stack", "stack"),
        ("dynamodb://us-east-1/my-stack/more", "stack"),
    ],
)
def test_other_forms_are_refused(text: str, field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        parse_url(text)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "cannot be empty"),
        ("my_stack", "underscores"),
        ("my.stack", "periods"),
        ("my stack", "spaces"),
        ("1st-stack", "must start with a letter"),
        ("stäck", "must start with a letter and hold only"),
        ("stack\n", "must start with a letter and hold only"),
        ("stack#1", "must start with a letter and hold only"),
        ("ab", "3 to 55 characters"),
        ("x" * 56, "3 to 55 characters"),
        (5, "must be a string, not int"),
    ],
)
def test_stack_names_that_aws_would_refuse(name: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as raised:
        validate_stack_name(name)
    assert raised.value.field == "name"


@pytest.mark.parametrize("name", ["zae-limiter", "Abc", "x" * 55])
def test_stack_names_that_aws_takes(name: str) -> None:
    assert validate_stack_name(name) == name


@pytest.mark.parametrize(
    ("arguments", "environment", "wanted"),
    [
        ({}, {}, "dynamodb:///zae-limiter"),
        ({}, {"ZAEL_STACK": "from-env"}, "dynamodb:///from-env"),
        ({"stack": "given"}, {"ZAEL_STACK": "from-env"}, "dynamodb:///given"),
        ({"stack": "given"}, {"ZAEL_URL": "memory://"}, "dynamodb:///given"),
        ({"region": "eu-west-1"}, {}, "dynamodb://eu-west-1/zae-limiter"),
        ({}, {"ZAEL_URL": "memory://", "ZAEL_STACK": "from-env"}, "memory://"),
        ({"url": "memory://"}, {"ZAEL_URL": "x", "ZAEL_STACK": "from-env"}, "memory://"),
        ({"url": ""}, {"ZAEL_URL": ""}, "dynamodb:///zae-limiter"),
    ],
    ids=str,
)
def test_arguments_come_before_the_environment(
    arguments: dict[str, str],
    environment: dict[str, str],
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert check_opening(None, cast(OpenOptions, arguments)).store.text == wanted


@pytest.mark.parametrize(
    ("arguments", "environment", "field", "reason"),
    [
        ({"url": "memory://", "stack": "my-stack"}, {}, "stack", "named by url= already"),
        ({"url": "memory://", "region": "eu-west-1"}, {}, "region", "named by url= already"),
        ({"url": "memory://", "endpoint_url": "http://x"}, {}, "endpoint_url", "named by url="),
        ({"url": None, "region": "x"}, {"ZAEL_URL": "memory://"}, "region", "named by ZAEL_URL"),
        ({"url": None, "region": "x y"}, {}, "region", "must be like us-east-1"),
        ({"url": None, "stack": "a_b"}, {}, "stack", "underscores"),
        ({"url": None, "read_timeout": 0}, {}, "read_timeout", "above 0"),
        ({"url": None, "read_timeout": True}, {}, "read_timeout", "number of seconds"),
        ({"url": "memory://", "connect_timeout": "1"}, {}, "connect_timeout", "number of seconds"),
        ({"url": None, "stack": 5}, {}, "stack", "must be a string, not int"),
        ({"url": None, "endpoint_url": 5}, {}, "endpoint_url", "must be a string, not int"),
    ],
    ids=str,
)
def test_options_that_contradict_or_make_no_sense_are_refused(
    arguments: dict[str, object],
    environment: dict[str, str],
    field: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=reason) as raised:
        check_opening(None, cast(OpenOptions, arguments))
    assert raised.value.field == field


def test_timeouts_that_are_given_come_before_those_of_the_url() -> None:
    url = "dynamodb:///my-stack?connect_timeout=1&read_timeout=2"
    found = check_opening(None, {"url": url, "read_timeout": 0.25}).store
    assert isinstance(found, DynamoUrl)
    assert (found.connect_timeout, found.read_timeout) == (1, 0.25)


@pytest.mark.parametrize(
    "text",
    [
        "dynamodb:///my-stack?endpoint_url=http://user:secret@localhost#part",
        "dynamodb:///abc?x&endpoint_url=http%3A%2F%2Fuser%3Asecret%40localhost",
        "dynamodb:///abc?x&endpoint_url=http%3a%2f%2fuser%3ase%2fcret%40localhost",
        "dynamodb:///abc?x&endpoint_url=http://user:p@secret@localhost",
        "dynamodb://user:secret@us-east-1/my-stack",
        "redis://user:secret@localhost",
        "sqlite://user:secret@localhost/limits.db",
        "http://user:sec ret@[",
        "memory://user:secret@localhost",
    ],
)
def test_an_error_about_a_url_shows_no_password(text: str) -> None:
    with pytest.raises(ValidationError) as raised:
        parse_url(text)
    assert "**" in raised.value.value
    for part in ("secret", "se%2fcret", "ret@", "user"):
        assert part not in raised.value.value
        assert part not in str(raised.value)


@pytest.mark.parametrize("url", [None, "memory://"])
def test_an_error_about_an_endpoint_shows_no_password(url: str | None) -> None:
    with pytest.raises(ValidationError) as raised:
        SyncRepository.open(url=url, endpoint_url="http://user:secret@localhost:8000")
    assert raised.value.value == "http://***@localhost:8000"
