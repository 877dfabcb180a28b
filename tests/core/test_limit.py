from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import limits, quick
from zae_limiter.core.exceptions import InvalidNameError, ValidationError
from zae_limiter.core.limit import (
    MAX_LIMITS,
    BucketState,
    Limit,
    LimitName,
    LimitSet,
    validate_limits,
)
from zae_limiter.core.validation import MAX_AMOUNT, MAX_PERIOD_SECONDS

FIELDS = ["capacity", "refill_amount", "refill_period_seconds"]
MAXIMUM = {
    "capacity": MAX_AMOUNT,
    "refill_amount": MAX_AMOUNT,
    "refill_period_seconds": MAX_PERIOD_SECONDS,
}
RPM = Limit.per_minute("rpm", 60)
TPM = Limit.per_minute("tpm", 6000)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit.per_second("x", 5), Limit("x", 5, 5, 1)),
        (Limit.per_minute("x", 5), Limit("x", 5, 5, 60)),
        (Limit.per_hour("x", 5), Limit("x", 5, 5, 3600)),
        (Limit.per_day("x", 5), Limit("x", 5, 5, 86_400)),
        (Limit.per_second("x", 5, burst=9), Limit("x", 9, 5, 1)),
        (Limit.per_minute("x", 5, burst=9), Limit("x", 9, 5, 60)),
        (Limit.per_hour("x", 5, 9), Limit("x", 9, 5, 3600)),
        (Limit.per_day("x", 5, 3), Limit("x", 3, 5, 86_400)),
        (Limit.custom("x", 1, 2, 3), Limit("x", 1, 2, 3)),
        (
            Limit.custom("x", capacity=1, refill_amount=2, refill_period_seconds=3),
            Limit("x", 1, 2, 3),
        ),
    ],
)
def test_ways_to_make_one(limit: Limit, expected: Limit) -> None:
    assert limit == expected


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (0, "must be positive"),
        (-1, "must be positive"),
        (True, "must be an integer, not bool"),
        (False, "must be an integer, not bool"),
        (1.0, "must be an integer, not float"),
        ("1", "must be an integer, not str"),
        (None, "must be an integer, not NoneType"),
        pytest.param(10**5000, "must be at most ", id="endless"),
    ],
)
def test_numbers_that_make_no_limit_are_refused_by_name(
    field: str, value: Any, problem: str
) -> None:
    good: dict[str, Any] = dict.fromkeys(FIELDS, 1)
    with pytest.raises(ValueError, match=f"^{field} {problem}"):
        Limit("x", **good | {field: value})


@pytest.mark.parametrize("field", FIELDS)
def test_the_largest_numbers_pass_and_one_more_does_not(field: str) -> None:
    good: dict[str, Any] = dict.fromkeys(FIELDS, 1)
    Limit("x", **good | {field: MAXIMUM[field]})
    with pytest.raises(ValueError, match=f"^{field} must be at most {MAXIMUM[field]}$"):
        Limit("x", **good | {field: MAXIMUM[field] + 1})


@pytest.mark.parametrize("burst", [0, -1])
def test_a_burst_of_nothing_is_refused_and_not_taken_for_none(burst: int) -> None:
    with pytest.raises(ValueError, match=r"^capacity must be positive$"):
        Limit.per_minute("x", 5, burst=burst)


@pytest.mark.parametrize("name", ["", "wcu", "a b", "7", "a#b", "a" * 65, None, 7, []])
def test_names_are_checked(name: Any) -> None:
    with pytest.raises(InvalidNameError) as caught:
        Limit(name, 1, 1, 1)
    assert caught.value.field == "name"


def test_a_limit_cannot_be_changed_and_can_be_a_key() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RPM.capacity = 7  # type: ignore[misc]
    assert {RPM: 1}[Limit.per_minute("rpm", 60)] == 1


def test_rate_and_time_to_fill() -> None:
    limit = Limit.custom("x", 90, 30, 60)
    assert limit.refill_rate == 0.5
    assert limit.seconds_to_fill == 180.0


@quick
@given(limits(max_amount=MAX_AMOUNT))
def test_a_limit_survives_its_dictionary_and_its_bucket(limit: Limit) -> None:
    assert Limit.from_dict(limit.to_dict()) == limit
    state = BucketState.from_limit("key", "gpt-4", limit, 5)
    assert Limit.from_bucket_state(state) == limit


def test_the_dictionary_has_the_four_fields() -> None:
    assert RPM.to_dict() == {
        "name": "rpm",
        "capacity": 60,
        "refill_amount": 60,
        "refill_period_seconds": 60,
    }


def test_common_names() -> None:
    names = {key: value for key, value in vars(LimitName).items() if key.isupper()}
    assert set(names) == {"RPM", "RPH", "RPD", "TPM", "TPH", "TPD"}
    assert all(value == key.lower() for key, value in names.items())


class TestLimitSet:
    def test_knows_its_limits_by_name_and_the_slowest(self) -> None:
        slow = Limit.custom("slow", 100, 1, 60)
        found = LimitSet.of([RPM, slow])
        assert found.limits == (RPM, slow)
        assert found.by_name == {"rpm": RPM, "slow": slow}
        assert found.seconds_to_fill == 6000.0

    def test_no_limits_fill_at_once(self) -> None:
        assert LimitSet.of([]).seconds_to_fill == 0.0

    def test_the_order_does_not_matter_to_the_fingerprint(self) -> None:
        assert LimitSet.of([RPM, TPM]).fingerprint == LimitSet.of([TPM, RPM]).fingerprint

    @quick
    @given(st.lists(limits(max_amount=3), min_size=2, max_size=2, unique=True))
    def test_every_number_matters_to_it(self, pair: list[Limit]) -> None:
        one, two = (LimitSet.of([limit]) for limit in pair)
        assert one.fingerprint != two.fingerprint

    def test_names_and_absence_matter_to_it(self) -> None:
        sets = [[RPM], [TPM], [RPM, TPM], [Limit("rpm2", 60, 60, 60)], []]
        assert len({LimitSet.of(limits).fingerprint for limits in sets}) == len(sets)

    def test_it_is_the_same_in_every_process_and_release(self) -> None:
        assert LimitSet.of([RPM, TPM]).fingerprint == "954024ebcbec"


class TestValidateLimits:
    def test_any_sequence_becomes_a_tuple(self) -> None:
        assert validate_limits([RPM, TPM]) == (RPM, TPM)
        assert validate_limits((RPM,)) == (RPM,)

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ([], "must hold at least one limit"),
            (RPM, "must be a list of Limit"),
            (None, "must be a list of Limit"),
            ({RPM}, "must be a list of Limit"),
            ({"rpm": 60}, "must be a list of Limit"),
            ([RPM, "tpm"], "must hold Limit, not str"),
            ("rpm", "must hold Limit, not str"),
            ([RPM, TPM, RPM], "names rpm more than once"),
            ([TPM, RPM, TPM, RPM], "names rpm, tpm more than once"),
        ],
    )
    def test_anything_else_is_refused(self, value: Any, reason: str) -> None:
        with pytest.raises(ValidationError) as caught:
            validate_limits(value)
        assert (caught.value.field, caught.value.reason) == ("limits", reason)

    def test_there_may_be_only_so_many(self) -> None:
        many = [Limit.per_minute(f"limit-{number}", 1) for number in range(MAX_LIMITS + 1)]
        assert len(validate_limits(many[1:])) == MAX_LIMITS
        with pytest.raises(ValidationError, match=f"holds more than {MAX_LIMITS} limits"):
            validate_limits(many)

    def test_a_field_of_ones_own_is_named(self) -> None:
        with pytest.raises(ValidationError, match=r"^Invalid default_limits: "):
            validate_limits([], "default_limits")
