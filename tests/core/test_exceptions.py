from __future__ import annotations

import copy
import inspect
import json
import math
import pickle

import pytest

from zae_limiter.core import exceptions, rate_limit_exceeded
from zae_limiter.core.exceptions import (
    EntityError,
    EntityExistsError,
    EntityNotFoundError,
    EntityVersionError,
    IdempotencyKeyError,
    IncompatibleSchemaError,
    InfrastructureError,
    InfrastructureNotFoundError,
    InvalidIdentifierError,
    InvalidLimitError,
    InvalidModeError,
    InvalidNameError,
    LeaseExpiredError,
    ManifestConflictError,
    ManifestError,
    NamespaceNotFoundError,
    NamespaceStateError,
    RateLimitError,
    RateLimiterUnavailable,
    StackAlreadyExistsError,
    StackOperationError,
    StorageUnavailable,
    StoreConfigurationError,
    StoredDataError,
    ValidationError,
    VersionError,
    VersionMismatchError,
    ZAELimiterError,
)
from zae_limiter.core.limit import Limit
from zae_limiter.core.located import ManifestProblem
from zae_limiter.core.models import LimitStatus
from zae_limiter.core.rate_limit_exceeded import RateLimitExceeded

RPM = Limit.per_minute("rpm", 60)
TPM = Limit.per_minute("tpm", 6000)


def status(
    limit: Limit = RPM,
    *,
    available: int = 0,
    requested: int = 1,
    exceeded: bool = True,
    retry_after_seconds: float = 1.5,
) -> LimitStatus:
    return LimitStatus(
        "key", "gpt-4", limit.name, limit, available, requested, exceeded, retry_after_seconds
    )


FINE = status(TPM, available=10, exceeded=False, retry_after_seconds=0.0)
HOPELESS = status(requested=61, retry_after_seconds=math.inf)

# One of each, with the message that it must have.
ERRORS: list[tuple[ZAELimiterError, str]] = [
    (ZAELimiterError("broken"), "broken"),
    (RateLimitError("broken"), "broken"),
    (InfrastructureError("broken"), "broken"),
    (EntityError("broken"), "broken"),
    (VersionError("broken"), "broken"),
    (ValidationError("limits", [], "must not be empty"), "Invalid limits: must not be empty"),
    (InvalidIdentifierError("entity_id", "#", "no"), "Invalid entity_id: no"),
    (InvalidNameError("resource", "", "cannot be empty"), "Invalid resource: cannot be empty"),
    (InvalidLimitError("capacity", 0, "must be positive"), "capacity must be positive"),
    (InvalidModeError("mode", "x", "must be a or b"), "Invalid mode: must be a or b"),
    (ManifestConflictError(["a: no", "b: no"], can_force=True), "a: no; b: no"),
    (
        ManifestError("f.yaml", [ManifestProblem("", "is bad", 2, 1), ManifestProblem("a", "no")]),
        "f.yaml:2:1: is bad; f.yaml: a: no",
    ),
    (
        RateLimitExceeded([status(), FINE]),
        "Rate limit exceeded for key/gpt-4: [rpm]. Retry after 1.5s",
    ),
    (
        RateLimitExceeded([HOPELESS]),
        "Rate limit exceeded for key/gpt-4: [rpm]. Requested 61 rpm is above the capacity of 60:"
        " it can never succeed",
    ),
    (LeaseExpiredError(), "Lease is no longer active"),
    (
        IdempotencyKeyError("job-1", "consume"),
        "Idempotency key 'job-1' was used with another consume: use a new key",
    ),
    (RateLimiterUnavailable("no answer"), "no answer"),
    (
        RateLimiterUnavailable(
            "no answer", OSError("reset"), stack_name="s", entity_id="key", resource="gpt-4"
        ),
        "no answer [stack=s, entity=key, resource=gpt-4]",
    ),
    (RateLimiterUnavailable("no answer", entity_id="key"), "no answer [entity=key]"),
    (StoreConfigurationError("no table", entity_id="key"), "no table [entity=key]"),
    (StorageUnavailable("throttled", OSError("x"), retryable=False, ambiguous=True), "throttled"),
    (StoredDataError("bucket key/gpt-4", "no rf"), "Cannot read bucket key/gpt-4: no rf"),
    (StackOperationError("s", "denied", [{"id": 1}]), "Stack 's': denied"),
    (StackAlreadyExistsError("s"), "Stack 's' already exists"),
    (InfrastructureNotFoundError("s"), "No limiter found at 's'"),
    (NamespaceNotFoundError("team"), "Namespace 'team' is not registered"),
    (NamespaceStateError("being purged", namespace_name="team", state="purging"), "being purged"),
    (EntityNotFoundError("key"), "Entity 'key' does not exist"),
    (EntityExistsError("key"), "Entity 'key' already exists"),
    (
        EntityVersionError("key", 1, 2),
        "Entity 'key' is at version 2, not 1: read it again",
    ),
    (VersionMismatchError("1.1", "2", "1.0", "update the Lambda", True), "update the Lambda"),
    (IncompatibleSchemaError("1.1", "9", "too new", "https://example.org"), "too new"),
]


def name(error: object) -> str:
    return type(error).__name__


def test_every_error_is_in_the_table() -> None:
    public = {
        value
        for module in (exceptions, rate_limit_exceeded)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, ZAELimiterError)
    }
    assert {type(error) for error, _ in ERRORS} == public


@pytest.mark.parametrize(("error", "message"), ERRORS, ids=[name(error) for error, _ in ERRORS])
def test_messages(error: ZAELimiterError, message: str) -> None:
    assert str(error) == message


def said(error: BaseException) -> dict[str, object]:
    """What an error says, with errors inside it as text: they never compare equal."""
    return {
        key: repr(value) if isinstance(value, BaseException) else value
        for key, value in vars(error).items()
    }


@pytest.mark.parametrize("error", [error for error, _ in ERRORS], ids=name)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_a_process_boundary(error: ZAELimiterError, protocol: int) -> None:
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert said(back) == said(error)


@pytest.mark.parametrize("error", [error for error, _ in ERRORS], ids=name)
def test_every_error_can_be_copied(error: ZAELimiterError) -> None:
    for back in (copy.copy(error), copy.deepcopy(error)):
        assert (type(back), str(back), said(back)) == (type(error), str(error), said(error))


def test_notes_survive_too() -> None:
    error = EntityNotFoundError("key")
    error.add_note("while charging its parent")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while charging its parent"]


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (RateLimitExceeded, RateLimitError),
        (LeaseExpiredError, RateLimitError),
        (IdempotencyKeyError, RateLimitError),
        (RateLimiterUnavailable, InfrastructureError),
        (StorageUnavailable, RateLimiterUnavailable),
        (StoreConfigurationError, RateLimiterUnavailable),
        (StoredDataError, InfrastructureError),
        (StackOperationError, InfrastructureError),
        (StackAlreadyExistsError, InfrastructureError),
        (InfrastructureNotFoundError, InfrastructureError),
        (NamespaceNotFoundError, InfrastructureError),
        (NamespaceStateError, InfrastructureError),
        (EntityNotFoundError, EntityError),
        (EntityExistsError, EntityError),
        (EntityVersionError, EntityError),
        (VersionMismatchError, VersionError),
        (IncompatibleSchemaError, VersionError),
        (InvalidIdentifierError, ValidationError),
        (InvalidNameError, ValidationError),
        (InvalidLimitError, ValidationError),
        (InvalidModeError, ValidationError),
    ],
)
def test_the_tree(error: type, base: type) -> None:
    assert error.__base__ is base


def test_fields() -> None:
    unavailable = RateLimiterUnavailable("m", OSError("x"), stack_name="s", entity_id="e")
    assert isinstance(unavailable.cause, OSError)
    assert (unavailable.stack_name, unavailable.entity_id, unavailable.resource) == ("s", "e", None)
    storage = StorageUnavailable("m")
    assert (storage.cause, storage.retryable, storage.ambiguous) == (None, True, False)
    stack = StackOperationError("s", "denied")
    assert (stack.stack_name, stack.reason, stack.events) == ("s", "denied", [])
    assert StackAlreadyExistsError("s").stack_name == "s"
    assert InfrastructureNotFoundError("s").stack_name == "s"
    assert NamespaceNotFoundError("team").namespace_name == "team"
    state = NamespaceStateError("m")
    assert (state.namespace_name, state.state) == ("", "")
    assert EntityNotFoundError("key").entity_id == "key"
    assert EntityExistsError("key").entity_id == "key"
    version = EntityVersionError("key", 1, 2)
    assert (version.entity_id, version.expected_version, version.version) == ("key", 1, 2)
    mismatch = VersionMismatchError("1", "2", None, "m")
    assert (mismatch.client_version, mismatch.schema_version) == ("1", "2")
    assert (mismatch.lambda_version, mismatch.can_auto_update) == (None, False)
    schema = IncompatibleSchemaError("1", "2", "m")
    assert (schema.client_version, schema.schema_version) == ("1", "2")
    assert schema.migration_guide_url is None


class TestRateLimitExceeded:
    def test_separates_what_blocked_from_what_passed(self) -> None:
        short, shorter = status(), status(TPM, retry_after_seconds=9.0)
        error = RateLimitExceeded([short, FINE, shorter])
        assert error.statuses == [short, FINE, shorter]
        assert error.violations == [short, shorter]
        assert error.passed == [FINE]
        assert error.primary_violation is shorter
        assert error.retry_after_seconds == 9.0
        assert str(error) == "Rate limit exceeded for key/gpt-4: [rpm, tpm]. Retry after 9.0s"

    @pytest.mark.parametrize("statuses", [[], [FINE]])
    def test_something_must_have_blocked(self, statuses: list[LimitStatus]) -> None:
        with pytest.raises(ValueError, match="at least one exceeded status"):
            RateLimitExceeded(statuses)

    @pytest.mark.parametrize(
        ("seconds", "header"), [(0.001, "1"), (0.999, "1"), (1.0, "2"), (59.2, "60")]
    )
    def test_the_header_is_whole_seconds_and_never_too_short(
        self, seconds: float, header: str
    ) -> None:
        error = RateLimitExceeded([status(retry_after_seconds=seconds)])
        assert error.retryable
        assert error.retry_after_header == header

    def test_a_request_above_the_capacity_has_no_retry_after(self) -> None:
        error = RateLimitExceeded([status(TPM, retry_after_seconds=9.0), HOPELESS])
        assert error.primary_violation is HOPELESS
        assert not error.retryable
        assert error.retry_after_header is None
        body = error.as_dict()
        assert (body["retryable"], body["retry_after_seconds"]) == (False, None)
        assert body["retry_after_ms"] is None
        assert [limit["retry_after_seconds"] for limit in body["limits"]] == [9.0, None]

    def test_the_body_says_everything_in_json(self) -> None:
        error = RateLimitExceeded([status(), FINE])
        body = error.as_dict()
        assert json.loads(json.dumps(body, allow_nan=False)) == body
        assert body == {
            "error": "rate_limit_exceeded",
            "message": str(error),
            "retryable": True,
            "retry_after_seconds": 1.5,
            "retry_after_ms": 1500,
            "limits": [
                {
                    "entity_id": "key",
                    "resource": "gpt-4",
                    "limit_name": "rpm",
                    "capacity": 60,
                    "refill_amount": 60,
                    "refill_period_seconds": 60,
                    "available": 0,
                    "requested": 1,
                    "exceeded": True,
                    "retry_after_seconds": 1.5,
                },
                {
                    "entity_id": "key",
                    "resource": "gpt-4",
                    "limit_name": "tpm",
                    "capacity": 6000,
                    "refill_amount": 6000,
                    "refill_period_seconds": 60,
                    "available": 10,
                    "requested": 1,
                    "exceeded": False,
                    "retry_after_seconds": 0.0,
                },
            ],
        }

    @pytest.mark.parametrize("wait_ms", [1, 1001, 1009, 4035, 64_010, 86_400_001])
    def test_milliseconds_are_not_cut_by_floating_point(self, wait_ms: int) -> None:
        error = RateLimitExceeded([status(retry_after_seconds=wait_ms / 1000)])
        assert error.as_dict()["retry_after_ms"] == wait_ms


class TestValidationError:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ("x" * 50, "x" * 50),
            ("x" * 51, "x" * 50 + "..."),
            (None, "None"),
            (["a"], "['a']"),
            (3.5, "3.5"),
        ],
    )
    def test_shows_the_value_shortened(self, value: object, shown: str) -> None:
        assert ValidationError("field", value, "no").value == shown

    def test_a_value_that_cannot_be_encoded_is_shown_escaped(self) -> None:
        error = ValidationError("field", "bad \udcff name", "no")
        assert error.value == "bad \\udcff name"
        error.value.encode()

    def test_a_value_with_control_characters_is_shown_escaped(self) -> None:
        assert ValidationError("field", "a\x1b[31m\nb", "no").value == "a\\x1b[31m\\nb"

    def test_a_number_too_long_to_be_printed_is_shown_somehow(self) -> None:
        error = ValidationError("field", 10**5000, "too large")
        assert (error.field, error.reason) == ("field", "too large")
        assert len(error.value) <= 53
        assert "int" in error.value

    def test_a_value_that_cannot_say_what_it_is_does_not_hide_the_error(self) -> None:
        class Mute:
            def __str__(self) -> str:
                raise RuntimeError("no words")

        assert "Mute" in ValidationError("field", Mute(), "no").value


@pytest.mark.parametrize(
    "error",
    [
        EntityNotFoundError("a\x1b[31m\nb"),
        InfrastructureNotFoundError("/data/\x07\x9b1m.db"),
        StoredDataError("record\r", "\u202ereason"),
        StorageUnavailable("locked\x00", RuntimeError("x")),
        NamespaceStateError("Namespace '\x7f'"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_messages_hold_no_control_characters(error: ZAELimiterError) -> None:
    assert str(error).isprintable()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
