from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.backends.dynamodb.clauses import Clause, Field, Update, Value
from zae_limiter.backends.dynamodb.wire.protocol import request_body
from zae_limiter.backends.dynamodb.wire.values import to_attribute

_FIXED = (("TableName", "limits"), ("ReturnValues", "ALL_NEW"))
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_ATTRIBUTES = st.text('ab%-._{}:#"é', min_size=1, max_size=6) | st.sampled_from(["b_a_tk", "rf"])


@pytest.fixture(autouse=True)
def _caller() -> None:
    """No server is called here."""


def _with_value(attribute: str) -> list[Clause]:
    field = Field(attribute)
    return [
        field.equals,
        field.equals_or_is_absent,
        field.is_absent_or_above,
        field.at_least,
        field.at_most,
        field.below,
        field.set,
        field.add,
        field.decrease,
    ]


@st.composite
def _clauses(draw: st.DrawFn) -> list[tuple[Clause, Value]]:
    clauses: list[tuple[Clause, Value]] = []
    for attribute in draw(st.lists(_ATTRIBUTES, min_size=1, max_size=4, unique=True)):
        field = Field(attribute)
        value = draw(st.integers() | _TEXT | st.booleans())
        clauses.append((draw(st.sampled_from(_with_value(attribute))), value))
        clauses += draw(st.sampled_from([[], [(field.exists, None)], [(field.remove, None)]]))
    return clauses


@given(st.lists(_clauses(), min_size=1, max_size=3), _TEXT)
def test_the_json_of_an_update_is_that_of_its_fields(
    updates: Sequence[list[tuple[Clause, Value]]], pk: str
) -> None:
    """Also when the text was written for other values before."""
    for clauses in [*updates, *updates]:
        update = Update.of(_FIXED, (pk, "#STATE"), clauses)
        assert json.loads(request_body(update)) == dict(update)


@given(_clauses())
def test_every_placeholder_has_its_value_and_is_used(clauses: list[tuple[Clause, Value]]) -> None:
    update = Update.of(_FIXED, ("a", "b"), clauses)
    values: dict[str, Any] = update["ExpressionAttributeValues"]
    assert [*values.values()] == [to_attribute(v) for _, v in clauses if v is not None]
    text = f"{update.get('UpdateExpression')} {update.get('ConditionExpression')} "
    for placeholder in [*values, *update.get("ExpressionAttributeNames", {})]:
        assert any(f"{placeholder}{end}" in text for end in " ,)"), placeholder


def test_an_update_says_what_its_clauses_say() -> None:
    tokens, count, gone = Field("b_rpm_tk"), Field("ac"), Field("ttl")
    clauses: list[tuple[Clause, Value]] = [
        (tokens.at_least, 5),
        (tokens.add, -5),
        (count.set, 1),
        (gone.remove, None),
    ]
    assert dict(Update.of(_FIXED, ("a", "b"), clauses)) == {
        "TableName": "limits",
        "ReturnValues": "ALL_NEW",
        "Key": {"PK": {"S": "a"}, "SK": {"S": "b"}},
        "UpdateExpression": "SET ac = :2 ADD b_rpm_tk :1 REMOVE #0",
        "ConditionExpression": "b_rpm_tk >= :0",
        "ExpressionAttributeNames": {"#0": "ttl"},
        "ExpressionAttributeValues": {":0": {"N": "5"}, ":1": {"N": "-5"}, ":2": {"N": "1"}},
    }


@given(st.integers(1, 48), st.integers(1, 64))
def test_no_expression_is_longer_than_servers_allow(limits: int, length: int) -> None:
    """Names that would make it so are replaced."""
    fields = [Field(f"b_{number:02}{'x' * length}_tk") for number in range(limits)]
    clauses: list[tuple[Clause, Value]] = [
        clause for f in fields for clause in ((f.at_least, 1), (f.at_most, 2), (f.decrease, 3))
    ]
    update = Update.of(_FIXED, ("a", "b"), clauses)
    texts = update["UpdateExpression"], update["ConditionExpression"]
    assert max(map(len, texts)) <= 4096
    names = update.get("ExpressionAttributeNames", {})
    assert all(f.attribute in names.values() or f.attribute in texts[1] for f in fields)
