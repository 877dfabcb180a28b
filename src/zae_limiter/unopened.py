"""A repository that is named and not opened, as PyPI's zae-limiter 0.17 makes one.

Such a repository reads and writes under the namespace id `default` itself, which no registry maps
to another id. So it finds the records that programs of 0.17 left there.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, TypedDict

from .backends.dynamodb.url import DynamoUrl
from .core.exceptions import ValidationError
from .core.validation import validate_stack_name
from .flows.scope import Scope
from .infra.options import StackOptions
from .naming import DEFAULT_NAMESPACE
from .opening import ConnectOptions, Opening, check_opening, first_scope
from .ports.io import Io
from .ports.repository_protocol import NamespaceRecord

_DEFAULT_LIMITER_NAME = "limiter"


class StackOfLimiter(TypedDict, total=False):
    """The options of a limiter that is made without a repository. `auto_update` has no effect: only
    a repository that is opened compares versions."""

    name: str
    region: str | None
    endpoint_url: str | None
    stack_options: StackOptions | None
    auto_update: bool
    bucket_ttl_refill_multiplier: int


def repository_options(stack: StackOfLimiter) -> dict[str, Any]:
    """Return the arguments of the repository that a limiter makes. The limiter itself warns."""
    unknown = stack.keys() - StackOfLimiter.__annotations__.keys()
    if unknown:
        raise TypeError(f"RateLimiter() got an unexpected keyword argument {min(unknown)!r}")
    options: dict[str, Any] = {"name": _DEFAULT_LIMITER_NAME, **stack}
    options["_skip_deprecation_warning"] = True
    options.pop("auto_update", None)
    multiplier = options.pop("bucket_ttl_refill_multiplier", None)
    if multiplier is not None:
        options["bucket_ttl_multiplier"] = multiplier
    return options


def name_stack(name: str, options: ConnectOptions) -> Opening:
    """Return the opening of a stack, checked before any I/O."""
    return check_opening(DEFAULT_NAMESPACE, {**options, "stack": validate_stack_name(name)})


def unopened_scope(opening: Opening, io: Io, *, blocking: bool) -> Scope:
    """Return a scope on a table that was not reached yet."""
    if not isinstance(opening.store, DynamoUrl):
        raise ValidationError("name", opening.store.text, "names no stack")
    store = opening.store.prepare(io, blocking=blocking)
    record = NamespaceRecord(DEFAULT_NAMESPACE, DEFAULT_NAMESPACE, created_at="")
    # No registry knows of this namespace, so its registration cannot be confirmed.
    return replace(first_scope(opening, store, io, record), namespace_name="")


def warn_unopened(kind: str) -> None:
    """Warn that a repository was made by its constructor."""
    _warn(f"{kind}(...) is deprecated: {kind}.open(...) or {kind}.builder().build() replaces it")


def warn_ensure() -> None:
    """Warn of `ensure_infrastructure`."""
    _warn("ensure_infrastructure() is deprecated: open the repository with create=True instead")


def warn_unnamed(kind: str, stack: StackOfLimiter) -> None:
    """Warn that a limiter was made without a repository."""
    how = f"{kind}({min(stack)}=...)" if stack else f"{kind}()"
    _warn(f"{how} is deprecated: {kind}(repository=...) replaces it")


def _warn(message: str) -> None:
    warnings.warn(f"{message}. It goes with version 1.0.", DeprecationWarning, stacklevel=3)
