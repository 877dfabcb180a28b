"""Every error this package raises on purpose.

ZAELimiterError
├── RateLimitError
│   ├── RateLimitExceeded          a limit said no; says which one and how long to wait
│   ├── LeaseExpiredError          the lease was used after its end
│   └── IdempotencyKeyError        an idempotency key was used for another request before
├── InfrastructureError
│   ├── RateLimiterUnavailable     the store could not answer
│   │   ├── StoreConfigurationError  it never will: credentials, permissions or table are wrong
│   │   └── StorageUnavailable     the same, as a backend reports it (retryable? ambiguous?)
│   ├── StoredDataError            a stored record cannot be read; names the record
│   ├── StackOperationError
│   ├── StackAlreadyExistsError
│   ├── InfrastructureNotFoundError
│   ├── NamespaceNotFoundError
│   └── NamespaceStateError
├── EntityError
│   ├── EntityNotFoundError
│   ├── EntityExistsError
│   └── EntityVersionError         an update was based on an older version of the entity
├── VersionError
│   ├── VersionMismatchError
│   └── IncompatibleSchemaError
├── ManifestConflictError          stored records stand against a manifest; nothing was changed
└── ValidationError                bad input; names the field, raised before anything is written
    ├── InvalidIdentifierError
    ├── InvalidNameError
    ├── InvalidLimitError          a number of a limit is out of bounds; a ValueError as well
    ├── InvalidModeError           a mode is none of those that exist; a ValueError as well
    └── ManifestError              a manifest has problems; lists all of them, with their places
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .located import ManifestProblem
from .text import printable

_SHOWN_VALUE_CHARS = 50


class ZAELimiterError(Exception):
    """Base of every error of this package. All of them can be pickled and copied, and their
    messages can be printed and logged whatever text of callers and stores is in them."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(arg) if isinstance(arg, str) else arg for arg in args))

    def __reduce__(self) -> tuple[Any, ...]:
        # Many are made from other things than their message, so __init__ must not run again.
        return _revive, (type(self), self.args), self.__dict__


def _revive(kind: type[ZAELimiterError], args: tuple[Any, ...]) -> ZAELimiterError:
    return kind.__new__(kind, *args)


class RateLimitError(ZAELimiterError):
    """Base of errors about limits and leases."""


class InfrastructureError(ZAELimiterError):
    """Base of errors about the store and what surrounds it."""


class EntityError(ZAELimiterError):
    """Base of errors about entities."""


class VersionError(ZAELimiterError):
    """Base of errors about client and schema versions."""


class ValidationError(ZAELimiterError):
    """Bad input. Nothing was changed."""

    _sentence = "Invalid {field}: {reason}"

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field = field
        self.value = _shown(value)
        self.reason = reason
        super().__init__(self._sentence.format(field=field, reason=reason))


# In a URL, and in a URL that is part of another one: `http%3A%2F%2Fuser%3Apassword%40host`.
_USERINFO = re.compile(r"(://|%3A%2F%2F)(?:(?!://|%3A%2F%2F).)*(@|%40)", re.I | re.S)


def hide_userinfo(text: str) -> str:
    """Return a text whose URLs have lost user and password."""
    return _USERINFO.sub(r"\1***\2", text)


def _shown(value: object) -> str:
    """Return a short text that can be logged, whatever the value. A URL loses user and password:
    logs are read by many."""
    try:
        text = str(value)
    except Exception:
        # A number can be too long to be printed, and the objects of callers may fail here.
        text = f"<{type(value).__name__}>"
    text = printable(hide_userinfo(text))
    return text if len(text) <= _SHOWN_VALUE_CHARS else text[:_SHOWN_VALUE_CHARS] + "..."


class InvalidLimitError(ValidationError, ValueError):
    """A number of a limit is out of bounds."""

    _sentence = "{field} {reason}"


class InvalidIdentifierError(ValidationError):
    """An entity id, parent id or principal is malformed."""


class InvalidNameError(ValidationError):
    """A limit, resource or namespace name is malformed."""


class InvalidModeError(ValidationError, ValueError):
    """A mode is none of those that exist."""


class ManifestError(ValidationError, ValueError):
    """A manifest has problems. All of them are listed, and nothing was changed."""

    _sentence = "{reason}"
    _max_lines = 100

    def __init__(self, source: str, problems: Sequence[ManifestProblem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__("manifest", source, "; ".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """The first 100 problems, a line each, as compilers write them: `limits.yaml:3:5: …`."""
        shown = [problem.in_file(self.source) for problem in self.problems[: self._max_lines]]
        more = len(self.problems) - len(shown)
        return [*shown, f"{self.source}: {more:,} more problems"] if more else shown


class ManifestConflictError(ZAELimiterError):
    """Stored records stand against a manifest: records that somebody else has changed
    (`can_force`), or entities that cannot be changed as it declares."""

    def __init__(self, conflicts: Sequence[str], can_force: bool = False) -> None:
        self.conflicts = tuple(conflicts)
        self.can_force = can_force
        super().__init__("; ".join(self.conflicts))


class LeaseExpiredError(RateLimitError):
    """The lease was used after its end: here, in another process, or by the end of its
    `lease_ttl`."""

    def __init__(self, message: str = "Lease is no longer active") -> None:
        super().__init__(message)


class IdempotencyKeyError(RateLimitError):
    """An idempotency key was used for another request before. `field`: the parameter that
    differs. Nothing was charged."""

    def __init__(self, idempotency_key: str, field: str) -> None:
        self.idempotency_key = idempotency_key
        self.field = field
        super().__init__(
            f"Idempotency key '{idempotency_key}' was used with another {field}: use a new key"
        )


class RateLimiterUnavailable(InfrastructureError):
    """The store could not answer, and the mode in force is to block."""

    def __init__(
        self,
        message: str,
        cause: BaseException | None = None,
        *,
        stack_name: str | None = None,
        entity_id: str | None = None,
        resource: str | None = None,
    ) -> None:
        self.cause = cause
        self.stack_name = stack_name
        self.entity_id = entity_id
        self.resource = resource
        named = {"stack": stack_name, "entity": entity_id, "resource": resource}
        context = ", ".join(f"{key}={value}" for key, value in named.items() if value)
        super().__init__(f"{message} [{context}]" if context else message)


class StoreConfigurationError(RateLimiterUnavailable):
    """The store refuses this client: credentials, permissions, address or table are wrong. That is
    no outage, so it is raised whatever `on_unavailable` says."""


class StorageUnavailable(RateLimiterUnavailable):
    """A backend could not carry out a call.

    `retryable`: the same call may succeed if it is sent again.
    `ambiguous`: the call may have taken effect although no answer came back.
    `is_outage`: it is not the configuration that is wrong.
    """

    def __init__(
        self,
        message: str,
        cause: BaseException | None = None,
        *,
        retryable: bool = True,
        ambiguous: bool = False,
        is_outage: bool = True,
    ) -> None:
        super().__init__(message, cause)
        self.is_outage = is_outage
        self.retryable = retryable
        self.ambiguous = ambiguous


class StoredDataError(InfrastructureError):
    """A stored record cannot be understood. It was left as it is."""

    def __init__(self, record: str, reason: str) -> None:
        self.record = record
        self.reason = reason
        super().__init__(f"Cannot read {record}: {reason}")


class StackOperationError(InfrastructureError):
    """A CloudFormation operation failed."""

    def __init__(
        self, stack_name: str, reason: str, events: list[dict[str, Any]] | None = None
    ) -> None:
        self.stack_name = stack_name
        self.reason = reason
        self.events = events or []
        super().__init__(f"Stack '{stack_name}': {reason}")


class StackAlreadyExistsError(InfrastructureError):
    """A stack of this name exists already."""

    def __init__(self, stack_name: str) -> None:
        self.stack_name = stack_name
        super().__init__(f"Stack '{stack_name}' already exists")


class InfrastructureNotFoundError(InfrastructureError):
    """The store that was named does not exist."""

    def __init__(self, stack_name: str, advice: str = "") -> None:
        self.stack_name = stack_name
        message = f"No limiter found at '{stack_name}'"
        super().__init__(f"{message}: {advice}" if advice else message)


class NamespaceNotFoundError(InfrastructureError):
    """No active namespace of this name."""

    def __init__(self, namespace_name: str) -> None:
        self.namespace_name = namespace_name
        super().__init__(f"Namespace '{namespace_name}' is not registered")


class NamespaceStateError(InfrastructureError):
    """The namespace is in a state that does not allow this."""

    def __init__(self, message: str, *, namespace_name: str = "", state: str = "") -> None:
        self.namespace_name = namespace_name
        self.state = state
        super().__init__(message)


class EntityNotFoundError(EntityError):
    """No entity, or no namespace, of this id."""

    def __init__(self, entity_id: str, noun: str = "Entity") -> None:
        self.entity_id = entity_id
        super().__init__(f"{noun} '{entity_id}' does not exist")


class EntityExistsError(EntityError):
    """An entity of this id exists already."""

    def __init__(self, entity_id: str, difference: str = "") -> None:
        self.entity_id = entity_id
        self.difference = difference
        super().__init__(f"Entity '{entity_id}' already exists {difference}".rstrip())


class EntityVersionError(EntityError):
    """The entity was changed by someone else since it was read."""

    def __init__(self, entity_id: str, expected_version: int, version: int) -> None:
        self.entity_id = entity_id
        self.expected_version = expected_version
        self.version = version
        super().__init__(
            f"Entity '{entity_id}' is at version {version}, not {expected_version}: read it again"
        )


class VersionMismatchError(VersionError):
    """Client and deployed parts are of versions that do not go together."""

    def __init__(
        self,
        client_version: str,
        schema_version: str,
        lambda_version: str | None,
        message: str,
        can_auto_update: bool = False,
    ) -> None:
        self.client_version = client_version
        self.schema_version = schema_version
        self.lambda_version = lambda_version
        self.can_auto_update = can_auto_update
        super().__init__(message)


class IncompatibleSchemaError(VersionError):
    """The stored schema cannot be used by this client."""

    def __init__(
        self,
        client_version: str,
        schema_version: str,
        message: str,
        migration_guide_url: str | None = None,
    ) -> None:
        self.client_version = client_version
        self.schema_version = schema_version
        self.migration_guide_url = migration_guide_url
        super().__init__(message)


class StoredDataWarning(UserWarning):
    """A stored record cannot be understood. It was left as it is, and left out of a list."""

    def __init__(self, error: StoredDataError) -> None:
        self.record = error.record
        self.reason = error.reason
        super().__init__(f"{error}. It was left out.")
