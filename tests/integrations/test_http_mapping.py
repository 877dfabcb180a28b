"""How limits and errors look in HTTP: fields, statuses, problem documents."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import (
    InvalidIdentifierError,
    Limit,
    LimitStatus,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.core.validation import MAX_AMOUNT, MAX_PERIOD_SECONDS
from zae_limiter.integrations import HttpAnswer, answer_to, rate_limit_fields

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_minute("tpm", 6_000, burst=9_000)
_ITEM = re.compile(r'"[^"\\]+"(;[a-z]+=[0-9]{1,15})+')


def status(
    limit: Limit = RPM,
    available: int = 40,
    requested: int = 1,
    wait_s: float = 0.0,
    entity_id: str = "key-1",
) -> LimitStatus:
    return LimitStatus(
        entity_id, "api", limit.name, limit, available, requested, wait_s > 0, wait_s
    )


def answer(error: Exception, **options: object) -> HttpAnswer:
    found = answer_to(error, **options)  # type: ignore[arg-type]
    assert found is not None
    assert dict(found.fields)["Content-Type"] == "application/problem+json"
    assert dict(found.fields)["Content-Length"] == str(len(found.body))
    assert json.loads(found.body)["status"] == found.status
    return found


def test_fields_of_an_admitted_call_tell_policies_and_balances() -> None:
    assert rate_limit_fields([status(), status(TPM, 8_999)]) == [
        ("RateLimit-Policy", '"rpm";q=100;w=60, "tpm";q=9000;w=90'),
        ("RateLimit", '"rpm";r=40, "tpm";r=8999'),
    ]


def test_an_empty_limit_tells_when_it_has_a_token_again() -> None:
    assert dict(rate_limit_fields([status(available=0)]))["RateLimit"] == '"rpm";r=0;t=1'


def test_a_limit_in_debt_has_nothing_left_and_tells_how_long() -> None:
    assert dict(rate_limit_fields([status(available=-99)]))["RateLimit"] == '"rpm";r=0;t=60'


def test_x_fields_are_those_of_the_limit_that_is_nearest_to_its_end() -> None:
    fields = dict(rate_limit_fields([status(), status(TPM, 0)], legacy=True))
    assert fields["X-RateLimit-Limit"] == "9000"
    assert fields["X-RateLimit-Remaining"] == "0"
    assert fields["X-RateLimit-Reset"] == "90"


def test_a_refusal_that_may_pass_later_is_429_with_the_time_to_wait() -> None:
    refused = RateLimitExceeded([status(available=0, wait_s=29.001), status(TPM, 0)])
    found = answer(refused)
    assert found.status_line == "429 Too Many Requests"
    fields = dict(found.fields)
    assert fields["Retry-After"] == "30"
    assert fields["RateLimit"] == '"rpm";r=0;t=30, "tpm";r=0'
    problem = json.loads(found.body)
    assert problem["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert problem["violated-policies"] == ["rpm"]


def test_a_whole_number_of_seconds_is_not_rounded_up_further() -> None:
    assert dict(answer(RateLimitExceeded([status(wait_s=30.0)])).fields)["Retry-After"] == "30"


def test_a_request_above_the_capacity_is_413_and_tells_no_time() -> None:
    found = answer(RateLimitExceeded([status(requested=101, wait_s=math.inf)]))
    assert found.status == 413
    assert "Retry-After" not in dict(found.fields)
    assert dict(found.fields)["RateLimit"] == '"rpm";r=40'
    assert json.loads(found.body)["violated-policies"] == ["rpm"]


ORG = status(Limit.per_minute("secret", 7), 0, 1, 12.0, "org-9")


def test_nothing_of_ancestors_is_told_unless_it_is_allowed() -> None:
    found = answer(RateLimitExceeded([status(), ORG]), legacy=True)
    told = json.dumps(found.fields) + found.body.decode()
    assert "org-9" not in told
    assert "secret" not in told
    assert dict(found.fields)["Retry-After"] == "12"
    assert json.loads(found.body)["violated-policies"] == []


def test_ancestors_are_named_with_their_limits_if_that_is_allowed() -> None:
    found = answer(RateLimitExceeded([status(), ORG]), expose="all")
    assert dict(found.fields)["RateLimit"] == '"rpm";r=40, "org-9/secret";r=0;t=12'
    assert json.loads(found.body)["violated-policies"] == ["org-9/secret"]


def test_an_outage_is_503_and_names_no_stack() -> None:
    error = RateLimiterUnavailable("no route", stack_name="my-stack", entity_id="key-1")
    found = answer(error)
    assert (found.status, dict(found.fields)["Retry-After"]) == (503, "1")
    assert "my-stack" not in found.body.decode()


@pytest.mark.parametrize(
    "error",
    [
        ValidationError("consume['tpm']", -1, "cannot be negative"),
        InvalidIdentifierError("entity_id", "a b", "must hold only letters"),
    ],
)
def test_bad_amounts_and_ids_are_400(error: ValidationError) -> None:
    assert answer(error).status == 400


@pytest.mark.parametrize(
    "error",
    [
        ValidationError("limits", "key-1", "no limits are configured"),
        ValidationError("consume", "tpm", "no limit named 'tpm'"),
        ValidationError("resource", "a b", "must hold only letters"),
        RuntimeError("no business of ours"),
    ],
)
def test_mistakes_of_the_application_have_no_answer(error: Exception) -> None:
    assert answer_to(error) is None


AMOUNTS = st.integers(1, MAX_AMOUNT)
LIMITS = st.builds(Limit, st.just("x"), AMOUNTS, AMOUNTS, st.integers(1, MAX_PERIOD_SECONDS))
STATUSES = st.builds(
    status,
    LIMITS,
    st.integers(-MAX_AMOUNT, MAX_AMOUNT),
    AMOUNTS,
    st.sampled_from([0.0, 0.001, 1.0, 59.9995, 10**9, math.inf]),
    st.sampled_from(["key-1", "org"]),
)


@given(st.lists(STATUSES, min_size=1, max_size=6), st.sampled_from(["own", "all"]))
def test_fields_are_structured_and_no_wait_is_longer_than_retry_after(
    statuses: list[LimitStatus], expose: str
) -> None:
    if not any(each.exceeded for each in statuses):
        fields = dict(rate_limit_fields(statuses, expose))  # type: ignore[arg-type]
    else:
        fields = dict(answer(RateLimitExceeded(statuses), expose=expose).fields)
        waits = [int(wait) for wait in re.findall(r";t=([0-9]+)", fields["RateLimit"])]
        assert all(wait <= int(fields.get("Retry-After", 10**9)) for wait in waits)
    for name in ("RateLimit-Policy", "RateLimit"):
        assert all(_ITEM.fullmatch(item) for item in fields[name].split(", "))
