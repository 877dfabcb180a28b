from __future__ import annotations

import json
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.backends.dynamodb.wire.values import from_attribute, from_item, to_attribute

_NUMBERS = st.integers(-(10**38) + 1, 10**38 - 1)
_LEAVES = (
    st.none() | st.booleans() | _NUMBERS | st.text() | st.sets(st.text(min_size=1), min_size=1)
)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(_VALUES)
def test_a_value_survives_json_and_back(value: Any) -> None:
    sent = json.loads(json.dumps(to_attribute(value)))
    returned = from_attribute(sent)
    assert returned == value
    assert type(returned) is type(value)


@given(_VALUES)
def test_boto3_reads_the_attributes_that_we_write(value: Any) -> None:
    assert TypeDeserializer().deserialize(to_attribute(value)) == value


@given(_NUMBERS)
def test_whole_numbers_stay_exact_integers(number: int) -> None:
    returned = from_attribute({"N": str(number)})
    assert returned == number
    assert type(returned) is int


@pytest.mark.parametrize(
    ("text", "number"),
    [("1E+3", 1000), ("5.0", 5), ("-0", 0), ("1E+125", 10**125), ("12E-1", Decimal("1.2"))],
)
def test_numbers_are_decimal_only_for_a_fraction(text: str, number: object) -> None:
    returned = from_attribute({"N": text})
    assert returned == number
    assert type(returned) is type(number)


def test_a_fraction_goes_back_as_it_came() -> None:
    assert to_attribute(from_attribute({"N": "0.125"})) == {"N": "0.125"}


def test_an_enum_is_stored_as_its_base_class() -> None:
    class Colour(StrEnum):
        RED = "red"

    class Level(IntEnum):
        HIGH = 3

    assert to_attribute(Colour.RED) == {"S": "red"}
    assert to_attribute(Level.HIGH) == {"N": "3"}


def test_sets_of_numbers_can_be_read() -> None:
    assert from_item({"n": {"NS": ["1", "2.5"]}}) == {"n": {1, Decimal("2.5")}}


@pytest.mark.parametrize("value", [1.5, object(), b"bytes"])
def test_a_value_that_dynamodb_cannot_store_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        to_attribute(value)


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(ValueError, match="empty set"):
        to_attribute(set())


@pytest.mark.parametrize("attribute", [{}, {"B": "AAAA"}])
def test_an_attribute_of_an_unknown_type_cannot_be_read(attribute: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        from_attribute(attribute)
