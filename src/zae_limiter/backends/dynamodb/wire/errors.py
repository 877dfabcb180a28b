"""What can go wrong between us and DynamoDB, by table.

core.StorageUnavailable        the call was not carried out, or nobody knows
├── retryable, not ambiguous   throttled (`Busy`); met another transaction; never sent (refused,
│                              no address, connect timeout)
├── retryable, ambiguous       no or broken answer (timeout, reset, checksum), status 5xx,
│                              a transaction that is still under way
└── not retryable              credentials missing, expired or unknown; wrong signature;
                               access denied; whoever answers is not DynamoDB
WireError                      DynamoDB answered, and had not done it
├── ConditionFailed            with the item that was found instead
├── TransactionCanceled        with a reason for each of its actions
├── ResourceMissing            no such table (yet)
├── ResourceInUse              the table exists, or is being changed
└── RequestInvalid             a bug on our side: it surfaces as it is

The `cause` of a `StorageUnavailable` that DynamoDB answered is a `WireError` with the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ....core.exceptions import StorageUnavailable
from .values import Item

_SHOWN_MESSAGE_CHARS = 500


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An answer other than success. `fields` is its whole JSON body."""

    operation: str
    status: int
    code: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        name = self.code or f"status {self.status}"
        return f"{self.operation}: {name}: {self.message[:_SHOWN_MESSAGE_CHARS]}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one action of a transaction was not carried out; `code` is "None" where it could be."""

    code: str
    message: str = ""
    item: Item | None = None


class Busy(StorageUnavailable):
    """DynamoDB bears no more of this at the moment."""


class WireError(Exception):
    """DynamoDB answered, and had not done it."""

    def __init__(self, answer: ErrorAnswer) -> None:
        super().__init__(str(answer))
        self.answer = answer

    @property
    def code(self) -> str:
        """The service's name for the error."""
        return self.answer.code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.answer,)


class ConditionFailed(WireError):
    """The condition of a write did not hold."""

    @property
    def item(self) -> Item | None:
        """The item as it is, if the request asked for `ALL_OLD` and there is one."""
        return self.answer.fields.get("Item")


class TransactionCanceled(WireError):
    """No action of the transaction was carried out."""

    @property
    def reasons(self) -> list[Reason]:
        """One for each action, in order."""
        return reasons(self.answer)


class ResourceMissing(WireError):
    """The table, or what else was named, does not exist."""


class ResourceInUse(WireError):
    """The table exists already, or is being changed."""


class RequestInvalid(WireError):
    """The request makes no sense to DynamoDB."""


def unsent(message: str, cause: BaseException | None = None) -> StorageUnavailable:
    """Nothing was sent, so nothing can have happened."""
    return StorageUnavailable(message, cause)


def lost(message: str, cause: BaseException | None = None) -> StorageUnavailable:
    """It was sent, and nobody knows what happened."""
    return StorageUnavailable(message, cause, ambiguous=True)


def hopeless(message: str, cause: BaseException | None = None) -> StorageUnavailable:
    """Nothing happened, and sending it again will not help."""
    return StorageUnavailable(message, cause, retryable=False)


ErrorRow = tuple[type[Exception], Callable[[str, BaseException], Exception]]
"""A kind of error of some library, and what we make of it and of a message."""


def raise_ours(error: Exception, table: Sequence[ErrorRow], where: str) -> NoReturn:
    """Raise our word for a library's error, by the first row that fits; else the error itself."""
    for kind, make in table:
        if isinstance(error, kind):
            raise make(f"{where}: {str(error) or type(error).__name__}", error) from error
    raise error


def exception_of(answer: ErrorAnswer) -> Exception:
    """What to raise for an error answer."""
    return _BY_CODE.get(answer.code, _by_status)(answer)


def reasons(answer: ErrorAnswer) -> list[Reason]:
    """Why a transaction was canceled, action by action."""
    found = answer.fields.get("CancellationReasons") or []
    return [
        Reason(each.get("Code") or "None", each.get("Message") or "", each.get("Item"))
        for each in found
    ]


def _throttled(answer: ErrorAnswer) -> Exception:
    return Busy(f"DynamoDB is too busy: {answer}", WireError(answer))


def _failed(answer: ErrorAnswer) -> Exception:
    return lost(f"DynamoDB has no result: {answer}", WireError(answer))


def _refused(advice: str) -> Callable[[ErrorAnswer], Exception]:
    return lambda answer: hopeless(f"{advice} ({answer})", WireError(answer))


_forbidden = _refused("The credentials do not allow this call: check the policy")


def _by_status(answer: ErrorAnswer) -> Exception:
    if answer.status >= 500:
        return _failed(answer)
    if answer.status == 429:
        return _throttled(answer)
    if answer.status in (401, 403):
        return _forbidden(answer)
    if answer.code:
        return RequestInvalid(answer)
    return hopeless(f"This is not how DynamoDB answers: {answer}", WireError(answer))


def _canceled(answer: ErrorAnswer) -> Exception:
    """A transaction that met others, or no capacity, may pass when it is sent again."""
    codes = {reason.code for reason in reasons(answer)} - {"None"}
    if codes and codes <= _PASSING_REASONS:
        return StorageUnavailable(f"DynamoDB is too busy: {answer}", WireError(answer))
    if "ValidationError" in codes:
        return RequestInvalid(answer)
    return TransactionCanceled(answer)


_PASSING_REASONS = {"ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"}

_TOO_BUSY = (
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionConflictException",
)
_FAILED = ("InternalFailure", "InternalServerError", "ServiceUnavailable")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException")
_UNKNOWN = (
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
)
_SIGNATURE = (
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
)
NOT_BELIEVED = frozenset((*_EXPIRED, *_UNKNOWN, *_SIGNATURE))
"""Codes that say: we do not believe that it is you. A wrong clock may be why."""

_BY_CODE: dict[str, Callable[[ErrorAnswer], Exception]] = {
    "ConditionalCheckFailedException": ConditionFailed,
    "TransactionCanceledException": _canceled,
    "ResourceNotFoundException": ResourceMissing,
    "TableNotFoundException": ResourceMissing,
    "ResourceInUseException": ResourceInUse,
    "TableAlreadyExistsException": ResourceInUse,
    **dict.fromkeys(_TOO_BUSY, _throttled),
    **dict.fromkeys(_FAILED, _failed),
    # An earlier request with the same token is still under way, and may yet take effect.
    "TransactionInProgressException": _failed,
    **dict.fromkeys(
        _EXPIRED, _refused("The AWS credentials have expired: sign in again or renew them")
    ),
    **dict.fromkeys(
        _UNKNOWN, _refused("AWS does not know these credentials: check the access key and token")
    ),
    **dict.fromkeys(
        _SIGNATURE, _refused("AWS did not accept the signature: check secret key, region and clock")
    ),
    "AccessDeniedException": _forbidden,
}
