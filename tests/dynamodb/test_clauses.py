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
_ATTRIBUTES = st.text('ab%-._{}:#"é', min_size=1, max_size=6)


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
    for placeholder in [*values, *update["ExpressionAttributeNames"]]:
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
        "UpdateExpression": "SET #1 = :2 ADD #0 :1 REMOVE #2",
        "ConditionExpression": "#0 >= :0",
        "ExpressionAttributeNames": {"#0": "b_rpm_tk", "#1": "ac", "#2": "ttl"},
        "ExpressionAttributeValues": {":0": {"N": "5"}, ":1": {"N": "-5"}, ":2": {"N": "1"}},
    }
