from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.backends.dynamodb.wire.errors import ErrorAnswer
from zae_limiter.backends.dynamodb.wire.protocol import (
    Answer,
    read_answer,
    request_body,
    request_headers,
)
from zae_limiter.core.exceptions import StorageUnavailable

_JSON = st.dictionaries(
    st.text(max_size=10), st.text(max_size=10) | st.booleans() | st.lists(st.text()), max_size=3
)


def _answer(body: bytes, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"x-amz-crc32": str(zlib.crc32(body)), **named}, body)


def test_a_request_names_its_operation() -> None:
    assert request_headers("UpdateItem") == {
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": "DynamoDB_20120810.UpdateItem",
    }


@given(_JSON)
def test_parameters_are_sent_as_json(parameters: dict[str, Any]) -> None:
    assert json.loads(request_body(parameters)) == parameters


@given(_JSON)
def test_a_sound_answer_is_read(content: dict[str, Any]) -> None:
    assert read_answer("GetItem", _answer(json.dumps(content).encode())) == content


@given(st.binary(min_size=1, max_size=80), st.data())
def test_a_damaged_answer_leaves_the_outcome_unknown(body: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(body) - 1))
    damaged = body[:at] + bytes([body[at] ^ data.draw(st.integers(1, 255))]) + body[at + 1 :]
    for status in (200, 400, 500):
        with pytest.raises(StorageUnavailable, match="checksum") as raised:
            read_answer("GetItem", Answer(status, _answer(body).headers, damaged))
        assert raised.value.ambiguous
        assert raised.value.retryable


def test_an_answer_without_checksum_is_read() -> None:
    assert read_answer("GetItem", Answer(200, {}, b"{}")) == {}


@pytest.mark.parametrize("body", [b"", b"{", b"<html>"])
def test_a_success_that_is_not_json_leaves_the_outcome_unknown(body: bytes) -> None:
    with pytest.raises(StorageUnavailable, match="not JSON") as raised:
        read_answer("GetItem", _answer(body))
    assert raised.value.ambiguous


@pytest.mark.parametrize("key", ["message", "Message"])
def test_an_error_answer_has_code_and_message(key: str) -> None:
    fields = {"__type": "com.amazonaws.dynamodb.v20120810#SomeException", key: "because"}
    body = json.dumps(fields).encode()
    assert read_answer("GetItem", _answer(body, 400)) == ErrorAnswer(
        "GetItem", 400, "SomeException", "because", fields
    )


def test_the_code_of_an_error_answer_may_come_in_a_header() -> None:
    answer = _answer(b"", 400, x_amzn_errortype="SomeException:http://internal/")
    found = read_answer("GetItem", answer)
    assert isinstance(found, ErrorAnswer)
    assert found.code == "SomeException"


def test_an_error_answer_that_is_not_json_shows_its_beginning() -> None:
    found = read_answer("GetItem", _answer(b"<html>Bad Gateway" + b"x" * 10_000, 502))
    assert isinstance(found, ErrorAnswer)
    assert found.code == ""
    assert found.message.startswith("<html>Bad Gateway")
    assert len(found.message) < 300
