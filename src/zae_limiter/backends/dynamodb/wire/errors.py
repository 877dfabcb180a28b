"""Tables translate every failure of a call into an exception of ours.

core.StorageUnavailable        the call was not carried out, or its outcome is unknown
├── retryable, not ambiguous   throttled (`Busy`); met another transaction; never sent (refused,
│                              no address, connect timeout, proxy overloaded)
├── retryable, ambiguous       no or broken answer (timeout, reset, checksum), status 5xx,
│                              a transaction that is still under way
└── not retryable              credentials missing, expired or unknown; wrong signature;
                               access denied; proxy refuses; the server is not DynamoDB
WireError                      DynamoDB answered that it has not carried out the call
├── ConditionFailed            with the item that was found instead
├── TransactionCanceled        with a reason for each of its actions
├── ResourceMissing            no such table (yet)
├── ResourceInUse              the table exists, or is being changed
└── RequestInvalid             a bug on our side: it surfaces as it is

Where DynamoDB answered, the `cause` of a `StorageUnavailable` is a `WireError` with the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ....core.exceptions import StorageUnavailable, hide_userinfo
from .values import Item

_SHOWN_MESSAGE_CHARS = 500


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error answer says why DynamoDB refused a call. `fields` is the whole JSON body."""

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
    """A reason says why an action of a transaction failed; `code` is "None" if it did not."""

    code: str
    message: str = ""
    item: Item | None = None


class Busy(StorageUnavailable):
    """DynamoDB throttles the call: it takes no more such requests at the moment."""


class WireError(Exception):
    """DynamoDB answered that it has not carried out the call."""

    def __init__(self, answer: ErrorAnswer) -> None:
        super().__init__(str(answer))
        self.answer = answer

    @property
    def code(self) -> str:
        """Return the service's name for the error."""
        return self.answer.code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.answer,)


class ConditionFailed(WireError):
    """The condition of a write did not hold."""

    @property
    def item(self) -> Item | None:
        """Return the item that was found, if the request asked for `ALL_OLD` and there is one."""
        return self.answer.fields.get("Item")


class TransactionCanceled(WireError):
    """No action of the transaction was carried out."""

    @property
    def reasons(self) -> list[Reason]:
        """Return a reason for each action, in order."""
        return reasons(self.answer)


class ResourceMissing(WireError):
    """The table or index does not exist."""


class ResourceInUse(WireError):
    """The table exists already, or is being changed."""


class RequestInvalid(WireError):
    """The request makes no sense to DynamoDB."""


def unsent(message: str, cause: BaseException | None = None) -> StorageUnavailable:
    """Build the error for a request that was not sent: it had no effect."""
    return StorageUnavailable(message, cause)


def lost(message: str, cause: BaseException | None = None) -> StorageUnavailable:
    """Build the error for a request that was sent, but whose outcome is unknown."""
    return StorageUnavailable(message, cause, ambiguous=True)


def hopeless(message: str, cause: BaseException | None = None) -> StorageUnavailable:
    """Build the error for a request that had no effect and would fail again: not DynamoDB is at
    fault, but what this client was told."""
    return StorageUnavailable(message, cause, retryable=False, is_outage=False)


def hopeless_now(message: str, cause: BaseException | None = None) -> StorageUnavailable:
    """Build the error for a request that is not sent, because its caller cannot wait for it."""
    return StorageUnavailable(message, cause, retryable=False)


def is_answer(error: StorageUnavailable) -> bool:
    """Tell whether DynamoDB itself refused the call, which shows that it is there."""
    return isinstance(error.cause, WireError) and error.cause.answer.status < 500


ErrorRow = tuple[type[Exception], Callable[[str, BaseException], Exception]]
"""A row maps a library's exception class to the function that builds our exception."""


def raise_ours(error: Exception, table: Sequence[ErrorRow], where: str) -> NoReturn:
    """Raise our exception for a library's, by the first row that fits; else the error itself."""
    for kind, make in table:
        if isinstance(error, kind):
            said = str(error) or type(error).__name__
            shown = hide_userinfo(said)
            if shown != said:
                # Not even as the cause: a traceback shows the messages of all causes.
                raise make(f"{where}: {shown}", ConnectionError(shown)) from None
            raise make(f"{where}: {said}", error) from error
    raise error


def exception_of(answer: ErrorAnswer) -> Exception:
    """Return the exception for an error answer."""
    return _BY_CODE.get(answer.code, _by_status)(answer)


def reasons(answer: ErrorAnswer) -> list[Reason]:
    """List why a transaction was canceled, action by action."""
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
    # Without a code it is not DynamoDB that answers, but a proxy or a gateway on the way.
    if answer.status in (401, 403) and answer.code:
        return _forbidden(answer)
    if answer.code:
        return RequestInvalid(answer)
    return hopeless(f"This is not how DynamoDB answers: {answer}", WireError(answer))


def _canceled(answer: ErrorAnswer) -> Exception:
    """A transaction that met another transaction, or no capacity, may succeed when retried."""
    if not _are_objects(answer.fields.get("CancellationReasons") or []):
        return _failed(answer)
    codes = {reason.code for reason in reasons(answer)} - {"None"}
    if codes and codes <= _PASSING_REASONS:
        return StorageUnavailable(f"DynamoDB is too busy: {answer}", WireError(answer))
    if "ValidationError" in codes:
        return RequestInvalid(answer)
    return TransactionCanceled(answer)


def _are_objects(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(each, dict) for each in found)


def _condition_failed(answer: ErrorAnswer) -> Exception:
    item = answer.fields.get("Item")
    return ConditionFailed(answer) if item is None or isinstance(item, dict) else _failed(answer)


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
"""These codes mean that AWS rejects the signature or the key. A wrong clock may be the cause."""

_BY_CODE: dict[str, Callable[[ErrorAnswer], Exception]] = {
    "ConditionalCheckFailedException": _condition_failed,
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
