from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.backends.dynamodb.bucket_writes import Change, change
from zae_limiter.backends.dynamodb.expressions import IS_NEW, Field, Term, Update, request_fields
from zae_limiter.backends.dynamodb.wire.protocol import request_body
from zae_limiter.backends.dynamodb.wire.values import to_attribute
from zae_limiter.core.bucket import MAX_DORMANT, BucketAddress, full_bucket, take_tokens
from zae_limiter.core.limit import MAX_LIMITS, Limit, LimitSet
from zae_limiter.core.planner import Intent, plan, plan_first, plan_restamp
from zae_limiter.core.rates import Rate
from zae_limiter.core.validation import FORGOTTEN, WCU
from zae_limiter.core.writes import Adjust, Fill, Refill, Take

_FIXED = (("TableName", "limits"), ("ReturnValues", "ALL_NEW"))
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_ATTRIBUTES = st.text('ab%-._{}:#"é', min_size=1, max_size=6) | st.sampled_from(["b_a_tk", "rf"])
_VALUES = st.integers() | _TEXT | st.booleans() | st.none() | st.dictionaries(_TEXT, _TEXT)
# DynamoDB takes no longer expressions.
_LONGEST = 4096


@pytest.fixture(autouse=True)
def _caller() -> None:
    """No server is called here."""


def _with_value(field: Field) -> list[Callable[[Any], Term]]:
    return [
        field.equals,
        field.equals_or_is_absent,
        field.differs_or_is_absent,
        field.is_above_or_absent,
        field.at_least,
        field.at_most,
        field.below,
        field.set,
        field.add,
    ]


@st.composite
def _terms(draw: st.DrawFn) -> list[Term]:
    terms: list[Term] = []
    for attribute in draw(st.lists(_ATTRIBUTES, min_size=1, max_size=4, unique=True)):
        field = Field(attribute)
        terms.append(draw(st.sampled_from(_with_value(field)))(draw(_VALUES)))
        terms += draw(st.sampled_from([[], [field.exists()], [field.remove()]]))
        if draw(st.booleans()):
            terms.append(field.key_between(draw(_TEXT), draw(_TEXT)))
    return terms


@given(st.lists(_terms(), min_size=1, max_size=3), _TEXT)
def test_the_json_of_an_update_is_that_of_its_fields_whatever_was_written_before(
    updates: Sequence[list[Term]], pk: str
) -> None:
    for terms in [*updates, *updates]:
        update = Update(_FIXED, (pk, "#STATE"), terms)
        assert json.loads(request_body(update)) == dict(update)


@given(_terms())
def test_every_placeholder_has_its_value_and_is_used(terms: list[Term]) -> None:
    fields = request_fields(terms)
    values: dict[str, Any] = fields["ExpressionAttributeValues"]
    assert [*values.values()] == [to_attribute(v) for _, _, said in terms for v in said]
    text = " ".join(text for name, text in fields.items() if name.endswith("Expression")) + " "
    for placeholder in [*values, *fields["ExpressionAttributeNames"]]:
        assert any(f"{placeholder}{end}" in text for end in " ,)<>="), placeholder


def test_an_update_says_what_its_terms_say() -> None:
    tokens, count, gone = Field("b_rpm_tk"), Field("ac"), Field("ttl")
    terms = [tokens.at_least(5), tokens.add(-5), count.set(1), gone.remove()]
    assert dict(Update(_FIXED, ("a", "b"), terms)) == {
        "TableName": "limits",
        "ReturnValues": "ALL_NEW",
        "Key": {"PK": {"S": "a"}, "SK": {"S": "b"}},
        "UpdateExpression": "SET #1=:2 ADD #0 :1 REMOVE #2",
        "ConditionExpression": "#0>=:0",
        "ExpressionAttributeNames": {"#0": "b_rpm_tk", "#1": "ac", "#2": "ttl"},
        "ExpressionAttributeValues": {":0": {"N": "5"}, ":1": {"N": "-5"}, ":2": {"N": "1"}},
    }


def test_a_condition_without_values_names_none() -> None:
    assert request_fields(IS_NEW) == {
        "ConditionExpression": "attribute_not_exists(#0)",
        "ExpressionAttributeNames": {"#0": "PK"},
    }


def test_no_terms_add_nothing_to_a_request() -> None:
    assert request_fields([]) == {}


def _longest_names(letter: str) -> LimitSet:
    names = [f"{letter}{number:063}" for number in range(MAX_LIMITS)]
    return LimitSet.of([Limit.custom(name, 10**6, 7, 97) for name in names])


def _intent(limits: LimitSet) -> Intent:
    takes_milli = {**dict.fromkeys(limits.names, 1000), WCU: 1000}
    return Intent(limits, takes_milli, 1, 10**6, "org", True, metered=True)


def rates_of(limits: LimitSet) -> dict[str, Rate]:
    return {name: cell.rate for name, cell in full_bucket(limits, 0).cells.items()}


def _writes_of_many_limits() -> dict[str, Change]:
    """All limits that a bucket may have, and all that it may remember, with names as long as
    they may be."""
    one, other = _longest_names("a"), _longest_names("b")
    full = full_bucket(one, 0, metered=True)
    used = take_tokens(full, _intent(one).takes_milli, 1)
    dormant = plan_restamp(_intent(other), used, "op", 7).after
    assert dormant.cells.keys() > {WCU, FORGOTTEN}
    assert len(dormant.cells) == MAX_LIMITS + MAX_DORMANT + 2
    deltas_milli = dict.fromkeys(dormant.cells, -1)
    owed = Adjust("op", 1, dict.fromkeys(used.cells, 1), 0, dormant, None, rates_of(one))
    writes = {
        "a taking": plan_first(_intent(one), used, "op", 1),
        "a filling": plan(_intent(one), full, "op", 10**6),
        "a refill": plan_restamp(_intent(one), used, "op", 7),
        "other limits": plan_restamp(_intent(other), used, "op", 7),
        "other limits again": plan_restamp(_intent(one), dormant, "op", 14),
        "limits that come and go": plan_restamp(_intent(_longest_names("c")), dormant, "op", 14),
        "an adjustment": Adjust("op", 1, deltas_milli, 0, dormant),
        "an adjustment of limits that are gone": owed,
    }
    return {name: write for name, write in writes.items() if isinstance(write, Change)}


_MANY = _writes_of_many_limits()


@pytest.mark.parametrize("write", _MANY.values(), ids=_MANY)
def test_a_bucket_with_the_most_limits_and_the_longest_names_can_be_written(write: Change) -> None:
    request = change("limits", BucketAddress("ns", "key", "model"), write)
    assert len(request["UpdateExpression"]) <= _LONGEST
    assert len(request["ConditionExpression"]) <= _LONGEST


def test_writes_of_many_limits_are_of_every_kind() -> None:
    assert {type(write) for write in _MANY.values()} == {Take, Fill, Refill, Adjust}
    assert len(_MANY) == 8
