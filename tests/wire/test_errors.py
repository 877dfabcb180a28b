from __future__ import annotations

import pickle
from typing import Any

import pytest

from zae_limiter.backends.dynamodb.wire.errors import (
    ConditionFailed,
    ErrorAnswer,
    Reason,
    RequestInvalid,
    ResourceInUse,
    ResourceMissing,
    TransactionCanceled,
    WireError,
    exception_of,
    hopeless,
    lost,
    raise_ours,
    unsent,
)
from zae_limiter.core.exceptions import StorageUnavailable


def _refusal(code: str, status: int = 400, **fields: Any) -> ErrorAnswer:
    return ErrorAnswer("UpdateItem", status, code, "because", fields)


def _canceled(*codes: str) -> ErrorAnswer:
    reasons = [{"Code": code} for code in codes]
    return _refusal("TransactionCanceledException", CancellationReasons=reasons)


@pytest.mark.parametrize(
    ("refusal", "retryable", "ambiguous"),
    [
        (_refusal("ProvisionedThroughputExceededException"), True, False),
        (_refusal("ThrottlingException"), True, False),
        (_refusal("RequestLimitExceeded"), True, False),
        (_refusal("LimitExceededException"), True, False),
        (_refusal("TransactionConflictException"), True, False),
        (_refusal("", 429), True, False),
        (_canceled("None", "TransactionConflict", "ThrottlingError"), True, False),
        (_refusal("InternalServerError", 500), True, True),
        (_refusal("TransactionInProgressException"), True, True),
        (_refusal("ServiceUnavailable", 503), True, True),
        (_refusal("SomethingNew", 500), True, True),
        (_refusal("", 502), True, True),
        (_refusal("ExpiredTokenException"), False, False),
        (_refusal("UnrecognizedClientException"), False, False),
        (_refusal("MissingAuthenticationTokenException"), False, False),
        (_refusal("InvalidSignatureException"), False, False),
        (_refusal("IncompleteSignatureException"), False, False),
        (_refusal("AccessDeniedException"), False, False),
        (_refusal("", 301), False, False),
        (_refusal("", 403), False, False),
        (_refusal("SomethingNew", 403), False, False),
    ],
)
def test_an_error_answer_of_the_store_is_retryable_or_ambiguous_by_table(
    refusal: ErrorAnswer, retryable: bool, ambiguous: bool
) -> None:
    error = exception_of(refusal)
    assert isinstance(error, StorageUnavailable)
    assert (error.retryable, error.ambiguous) == (retryable, ambiguous)
    assert "because" in str(error)
    assert isinstance(error.cause, WireError)
    assert error.cause.code == refusal.code


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (_refusal("ConditionalCheckFailedException"), ConditionFailed),
        (_canceled("None", "ConditionalCheckFailed"), TransactionCanceled),
        (_canceled("TransactionConflict", "ConditionalCheckFailed"), TransactionCanceled),
        (_canceled("ValidationError", "None"), RequestInvalid),
        (_canceled(), TransactionCanceled),
        (_refusal("ResourceNotFoundException"), ResourceMissing),
        (_refusal("ResourceInUseException"), ResourceInUse),
        (_refusal("ValidationException"), RequestInvalid),
        (_refusal("SerializationException"), RequestInvalid),
        (_refusal("IdempotentParameterMismatchException"), RequestInvalid),
        (_refusal("SomethingNew"), RequestInvalid),
    ],
)
def test_an_error_answer_with_a_known_code_has_its_own_exception(
    refusal: ErrorAnswer, kind: type[WireError]
) -> None:
    error = exception_of(refusal)
    assert type(error) is kind
    assert str(error) == f"UpdateItem: {refusal.code}: because"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("ExpiredTokenException", "expired"),
        ("UnrecognizedClientException", "access key"),
        ("InvalidSignatureException", "secret key, region and clock"),
        ("AccessDeniedException", "policy"),
    ],
)
def test_an_error_about_credentials_gives_advice(code: str, advice: str) -> None:
    assert advice in str(exception_of(_refusal(code)))


def test_a_failed_condition_carries_the_item() -> None:
    error = exception_of(_refusal("ConditionalCheckFailedException", Item={"PK": {"S": "a"}}))
    assert isinstance(error, ConditionFailed)
    assert error.item == {"PK": {"S": "a"}}
    without = exception_of(_refusal("ConditionalCheckFailedException"))
    assert isinstance(without, ConditionFailed)
    assert without.item is None


def test_a_canceled_transaction_carries_a_reason_for_each_action() -> None:
    item = {"PK": {"S": "a"}}
    refusal = _refusal(
        "TransactionCanceledException",
        CancellationReasons=[
            {"Code": "None"},
            {"Code": "ConditionalCheckFailed", "Message": "no", "Item": item},
        ],
    )
    error = exception_of(refusal)
    assert isinstance(error, TransactionCanceled)
    assert error.reasons == [Reason("None"), Reason("ConditionalCheckFailed", "no", item)]


def test_a_very_long_message_is_cut() -> None:
    refusal = ErrorAnswer("UpdateItem", 400, "ValidationException", "x" * 100_000)
    assert len(str(exception_of(refusal))) < 1000


def test_errors_survive_pickling() -> None:
    error = exception_of(_refusal("ConditionalCheckFailedException", Item={"PK": {"S": "a"}}))
    returned = pickle.loads(pickle.dumps(error))
    assert isinstance(returned, ConditionFailed)
    assert returned.item == {"PK": {"S": "a"}}


_TABLE = ((ConnectionRefusedError, unsent), (OSError, lost), (ValueError, hopeless))


@pytest.mark.parametrize(
    ("error", "message", "retryable", "ambiguous"),
    [
        (ConnectionRefusedError("no"), "host: no", True, False),
        (BrokenPipeError(), "host: BrokenPipeError", True, True),
        (UnicodeError("odd"), "host: odd", False, False),
    ],
)
def test_the_first_row_that_fits_an_error_decides(
    error: Exception, message: str, retryable: bool, ambiguous: bool
) -> None:
    with pytest.raises(StorageUnavailable) as raised:
        raise_ours(error, _TABLE, "host")
    assert str(raised.value) == message
    assert (raised.value.retryable, raised.value.ambiguous) == (retryable, ambiguous)
    assert raised.value.cause is error


def test_an_error_that_no_row_fits_is_raised_as_it_is() -> None:
    error = KeyError("x")
    with pytest.raises(KeyError) as raised:
        raise_ours(error, _TABLE, "host")
    assert raised.value is error
