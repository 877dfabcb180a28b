from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter.core.exceptions import (
    InvalidIdentifierError,
    InvalidNameError,
    ValidationError,
)
from zae_limiter.core.validation import (
    MAX_AMOUNT,
    validate_amount,
    validate_config_resource,
    validate_consume,
    validate_identifier,
    validate_limit_name,
    validate_metadata,
    validate_namespace,
    validate_principal,
    validate_resource,
    validate_stack_name,
    validate_text,
)

Check = Callable[[Any], object]

VALID: list[tuple[Check, str]] = [
    (validate_identifier, "a"),
    (validate_identifier, "7"),
    (validate_identifier, "user-1"),
    (validate_identifier, "User_1.x:y@example.org"),
    (validate_identifier, "a" * 256),
    (validate_limit_name, "rpm"),
    (validate_limit_name, "Tokens_per-minute.2"),
    (validate_limit_name, "wcu2"),
    (validate_limit_name, "WCU"),
    (validate_limit_name, "a" * 64),
    (validate_resource, "gpt-4"),
    (validate_resource, "openai/gpt-4.1:mini_x"),
    (validate_resource, "a" * 64),
    (validate_config_resource, "_default_"),
    (validate_config_resource, "gpt-4"),
    (validate_namespace, "default"),
    (validate_namespace, "7-team@x/y:z_a.b"),
    (validate_namespace, "a" * 256),
    (validate_principal, "alice@example.org"),
    (validate_principal, "arn:aws:iam::123456789012:role/My Role+=,"),
]

NOT_STRINGS: list[object] = [
    None,
    7,
    True,
    1.5,
    b"bytes",
    ["list"],
    {"dict": 1},
    {"set"},
    object(),
]
EVERYWHERE_BAD = [
    "",
    "a#b",
    "#",
    " a",
    "a b",
    "a\n",
    "a\x00",
    "é",
    "aé",
    "a\u0660",
    "a\ud800",
    "\udcff",
    "-a",
    "_a",
    ".a",
    "a!",
    "a\\b",
]

# The check, the field it names, its error, its longest name, and what it alone refuses.
RULES: list[tuple[Check, str, type[ValidationError], int, list[str]]] = [
    (validate_identifier, "entity_id", InvalidIdentifierError, 256, ["a/b", "@a", ":a"]),
    (validate_limit_name, "name", InvalidNameError, 64, ["a/b", "a:b", "a@b", "7a", "wcu"]),
    (validate_resource, "resource", InvalidNameError, 64, ["a@b", "7a", "/a", "_default_"]),
    (validate_config_resource, "resource", InvalidNameError, 64, ["a@b", "7a", "_other_"]),
    (validate_namespace, "namespace", InvalidNameError, 256, ["_", "/a", ":a"]),
]


@pytest.mark.parametrize(("check", "value"), VALID)
def test_good_names_pass_as_they_are(check: Check, value: str) -> None:
    assert check(value) == value
    assert check(value) == value, "also when they have been seen before"


@pytest.mark.parametrize(("check", "field", "error", "longest", "own"), RULES)
def test_bad_names_are_refused_by_a_typed_error_that_names_the_field(
    check: Check, field: str, error: type[ValidationError], longest: int, own: list[str]
) -> None:
    for value in [*EVERYWHERE_BAD, *own, "a" * (longest + 1), *NOT_STRINGS]:
        with pytest.raises(error) as caught:
            check(value)
        assert caught.value.field == field, value
        assert str(caught.value).startswith(f"Invalid {field}: ")
        caught.value.value.encode()


@pytest.mark.parametrize(
    ("check", "value", "reason"),
    [
        (validate_identifier, "", "cannot be empty"),
        (validate_identifier, "a" * 257, "exceeds maximum length of 256"),
        (validate_resource, "a" * 65, "exceeds maximum length of 64"),
        (validate_identifier, "a#b", "cannot contain '#' (reserved delimiter)"),
        (validate_identifier, "#" * 257, "exceeds maximum length of 256"),
        (validate_identifier, None, "must be a string, not NoneType"),
        (validate_identifier, [], "must be a string, not list"),
        (validate_limit_name, "wcu", "'wcu' is a reserved limit name"),
        (validate_limit_name, "7a", "must start with a letter and hold only letters, digits"),
        (validate_resource, "7a", "must start with a letter and hold only letters, digits"),
        (validate_identifier, "-a", "must start with a letter or digit and hold only"),
        (validate_namespace, "_", "reserved for system use"),
    ],
)
def test_the_first_rule_that_is_broken_gives_the_reason(
    check: Check, value: object, reason: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        check(value)
    assert caught.value.reason.startswith(reason)


def test_a_field_of_ones_own_is_named() -> None:
    for check in (
        validate_identifier,
        validate_limit_name,
        validate_resource,
        validate_config_resource,
        validate_namespace,
    ):
        with pytest.raises(ValidationError, match=r"^Invalid parent_id: "):
            check("", "parent_id")


def test_the_value_is_shown_shortened_and_printable() -> None:
    with pytest.raises(InvalidIdentifierError) as caught:
        validate_identifier("\ud800" * 300)
    assert caught.value.value.startswith("\\ud800\\ud800")
    assert len(caught.value.value) == 53


class Text(str):
    __slots__ = ()


class Unhashable(str):
    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Text, Unhashable])
def test_kinds_of_strings_are_checked_like_strings(kind: type[str]) -> None:
    assert validate_identifier(kind("user-1")) == "user-1"
    with pytest.raises(InvalidIdentifierError):
        validate_identifier(kind("user 1"))
    with pytest.raises(InvalidNameError):
        validate_limit_name(kind("wcu"))


@quick
@given(st.text(max_size=80) | st.text("ab_-.:@/#7", max_size=80))
def test_nothing_that_passes_can_break_a_key(value: str) -> None:
    for check in (validate_identifier, validate_limit_name, validate_resource, validate_namespace):
        try:
            check(value)
        except ValidationError:
            continue
        assert value.isascii()
        assert value.isprintable()
        assert "#" not in value
        assert value[0].isalnum()


class TestPrincipal:
    def test_nobody_is_fine(self) -> None:
        assert validate_principal(None) is None

    @pytest.mark.parametrize("value", ["", "not an id", "arn:" + "x" * 1021, "arn:\ud800", 7])
    def test_others_are_checked(self, value: Any) -> None:
        with pytest.raises(ValidationError, match=r"^Invalid principal: "):
            validate_principal(value)


class TestText:
    @pytest.mark.parametrize("value", ["", "any text, ü too", "x" * 1024, "#\n\x00"])
    def test_text_that_can_be_stored_passes(self, value: str) -> None:
        assert validate_text("name", value) == value

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (None, "must be a string, not NoneType"),
            (b"x", "must be a string, not bytes"),
            ("x" * 1025, "exceeds maximum length of 1024"),
            ("\ud800", "must be valid UTF-8"),
        ],
    )
    def test_the_rest_is_refused(self, value: object, reason: str) -> None:
        with pytest.raises(ValidationError) as caught:
            validate_text("name", value)
        assert (caught.value.field, caught.value.reason) == ("name", reason)


class TestMetadata:
    def test_none_is_none(self) -> None:
        assert validate_metadata(None) == {}

    def test_values_of_json_are_copied_to_the_last(self) -> None:
        given_ = {"n": 1, "x": -0.5, "on": True, "none": None, "deep": {"a": [1, {"b": "c"}]}}
        copied = validate_metadata(given_)
        assert copied == given_
        given_["deep"]["a"][1]["b"] = "changed"  # type: ignore[index]
        assert copied["deep"] == {"a": [1, {"b": "c"}]}

    def test_a_mapping_of_strings_is_copied(self) -> None:
        given_ = {"plan": "pro", "team": ""}
        copied = validate_metadata(MappingProxyType(given_))
        assert copied == given_
        assert copied is not given_

    @pytest.mark.parametrize(
        ("metadata", "field"),
        [
            ([("plan", "pro")], "metadata"),
            ("plan", "metadata"),
            ({str(number): "" for number in range(65)}, "metadata"),
            ({7: "x"}, "metadata key"),
            ({"\ud800": "x"}, "metadata key"),
            ({"plan": object()}, "metadata['plan']"),
            ({"plan": b"pro"}, "metadata['plan']"),
            ({"plan": {1, 2}}, "metadata['plan']"),
            ({"plan": "x" * 1025}, "metadata['plan']"),
            ({"plan": float("nan")}, "metadata['plan']"),
            ({"plan": float("inf")}, "metadata['plan']"),
            ({"plan": 1e-300}, "metadata['plan']"),
            ({"plan": 1e300}, "metadata['plan']"),
            ({"plan": 10**400}, "metadata['plan']"),
            ({"plan": {5: "x"}}, "metadata key"),
            ({"plan": {"a": ["b", b"c"]}}, "metadata['plan']['a'][1]"),
            ({"plan": [[[["deep"]]]]}, "metadata['plan'][0][0][0]"),
            ({"plan": list(range(65))}, "metadata['plan']"),
            ({"plan": [["x" * 1024] * 64] * 64}, "metadata"),
        ],
    )
    def test_anything_else_is_refused(self, metadata: Any, field: str) -> None:
        with pytest.raises(ValidationError) as caught:
            validate_metadata(metadata)
        assert caught.value.field == field


class TestAmount:
    @pytest.mark.parametrize("value", [0, 1, MAX_AMOUNT])
    def test_whole_amounts_pass(self, value: int) -> None:
        assert validate_amount("tpm", value) == value

    @pytest.mark.parametrize("value", [-MAX_AMOUNT, -1, 0, MAX_AMOUNT])
    def test_deltas_may_be_negative(self, value: int) -> None:
        assert validate_amount("tpm", value, signed=True) == value

    @pytest.mark.parametrize(
        ("value", "signed", "reason"),
        [
            (-1, False, "cannot be negative"),
            (True, False, "must be an integer, not bool"),
            (1.0, False, "must be an integer, not float"),
            ("1", False, "must be an integer, not str"),
            (None, False, "must be an integer, not NoneType"),
            ([], False, "must be an integer, not list"),
            (MAX_AMOUNT + 1, False, f"exceeds the maximum of {MAX_AMOUNT}"),
            (-MAX_AMOUNT - 1, True, f"exceeds the maximum of {MAX_AMOUNT}"),
            pytest.param(10**5000, True, f"exceeds the maximum of {MAX_AMOUNT}", id="endless"),
        ],
    )
    def test_the_rest_is_refused(self, value: object, signed: bool, reason: str) -> None:
        with pytest.raises(ValidationError) as caught:
            validate_amount("tpm", value, signed=signed)
        assert (caught.value.field, caught.value.reason) == ("tpm", reason)


class TestConsume:
    @pytest.mark.parametrize("consume", [{}, {"rpm": 1, "tpm": 0}, {"rpm": MAX_AMOUNT}])
    def test_names_and_amounts_pass(self, consume: dict[str, int]) -> None:
        assert validate_consume(consume) == consume
        assert validate_consume(MappingProxyType(consume)) == consume

    @pytest.mark.parametrize(
        ("consume", "field"),
        [
            (None, "consume"),
            ([("rpm", 1)], "consume"),
            ("rpm", "consume"),
            ({"": 1}, "consume"),
            ({7: 1}, "consume"),
            ({None: 1}, "consume"),
            ({("rpm",): 1}, "consume"),
            ({"wcu": 1}, "consume"),
            ({"rpm": -1}, "consume['rpm']"),
            ({"rpm": True}, "consume['rpm']"),
            ({"rpm": False}, "consume['rpm']"),
            ({"rpm": 1.0}, "consume['rpm']"),
            ({"rpm": None}, "consume['rpm']"),
            ({"rpm": MAX_AMOUNT + 1}, "consume['rpm']"),
            ({"rpm": 1, "tpm": "2"}, "consume['tpm']"),
        ],
    )
    def test_anything_else_is_refused(self, consume: Any, field: str) -> None:
        with pytest.raises(ValidationError) as caught:
            validate_consume(consume)
        assert caught.value.field == field

    def test_a_kind_of_integer_is_an_integer(self) -> None:
        class Count(int):
            pass

        assert validate_consume({"rpm": Count(3)}) == {"rpm": 3}
        with pytest.raises(ValidationError):
            validate_consume({"rpm": Count(-3)})


class TestStackName:
    @pytest.mark.parametrize("value", ["zae-limiter", "abc", "A1-b2", "a" * 55])
    def test_good_names_pass(self, value: str) -> None:
        assert validate_stack_name(value) == value

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ("", "cannot be empty"),
            ("my_stack", "cannot contain underscores"),
            ("my.stack", "cannot contain periods"),
            ("my stack", "cannot contain spaces"),
            ("7stack", "must start with a letter"),
            ("-stack", "must start with a letter"),
            ("stack/1", "must start with a letter and hold only"),
            ("stäck", "must start with a letter and hold only"),
            ("stack\n", "must start with a letter and hold only"),
            ("stack\ud800", "must start with a letter and hold only"),
            ("a" * 56, "must have"),
            (None, "must be a string, not NoneType"),
            ([], "must be a string, not list"),
        ],
    )
    def test_the_rest_is_refused(self, value: Any, reason: str) -> None:
        with pytest.raises(ValidationError) as caught:
            validate_stack_name(value)
        assert caught.value.field == "name"
        assert caught.value.reason.startswith(reason)
