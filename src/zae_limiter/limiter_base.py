"""This module is the common part of the asynchronous and the blocking limiter."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from .core.exceptions import InvalidModeError, ValidationError
from .core.limit import Limit, LimitSet, validate_limits
from .core.models import OnUnavailable
from .core.receipts import receipt_terms
from .flows.acquire.lease import resume_lease
from .flows.acquire.lease_record import LeaseRecord, LeaseTerms, check_timeout
from .flows.acquire.request import Request, make_request
from .flows.scope import Scope
from .repository_base import RepositoryBase

A = TypeVar("A")
OnError = Literal["refund", "keep"]


def _keeps(on_error: str) -> bool:
    if on_error not in ("refund", "keep"):
        raise InvalidModeError("on_error", on_error, "must be refund or keep")
    return on_error == "keep"


def check_mode(value: OnUnavailable | None) -> OnUnavailable | None:
    """Return a mode for its name; a mode and None are returned as they are."""
    if value is None or isinstance(value, OnUnavailable):
        return value
    try:
        return OnUnavailable(value)
    except ValueError as error:
        raise ValidationError("on_unavailable", value, "must be allow or block") from error


def check_repository(repository: object, wanted: type[RepositoryBase]) -> None:
    """Refuse what is no repository of the limiter's own driver."""
    if isinstance(repository, wanted):
        return
    reason = f"must be a {wanted.__name__}, not a {type(repository).__name__}"
    if isinstance(repository, Coroutine):
        repository.close()
        reason = f"has not been awaited: write `await {wanted.__name__}.open(...)`"
    raise ValidationError("repository", repository, reason)


class LimiterBase:
    """A limiter has a scope, and defaults of its own: the last level at which limits are looked
    for."""

    _lease_type: ClassVar[type[object]]

    def __init__(
        self,
        scope: Scope,
        default_limits: Sequence[Limit] | None,
        on_unavailable: OnUnavailable | None,
        speculative_writes: bool,
    ) -> None:
        self.scope = scope
        self._default = (
            None
            if default_limits is None
            else LimitSet.of(validate_limits(default_limits, "default_limits"))
        )
        self._speculative = speculative_writes
        self._fallback = check_mode(on_unavailable)
        self._usual_terms = LeaseTerms(None, None, self._fallback)

    def __repr__(self) -> str:
        settings = self.scope.settings
        return f"<{type(self).__name__} on {settings.stack_name!r}>"

    @property
    def name(self) -> str:
        """The name of the stack. Deprecated: `repository.stack_name` replaces it."""
        warnings.warn("use repository.stack_name instead", DeprecationWarning, stacklevel=2)
        return self.scope.settings.stack_name

    stack_name = table_name = name

    def _acquisition(
        self,
        make: Callable[[Scope, Request, LeaseTerms], A],
        entity_id: str,
        resource: str,
        consume: Mapping[str, int],
        limits: Sequence[Limit] | None,
        use_stored_limits: bool,
        on_unavailable: OnUnavailable | None,
        timeout: float | None,
        on_error: OnError,
        idempotency_key: str | None,
        idempotency_ttl: float | None,
        lease_ttl: float | None,
    ) -> A:
        request = self._request(entity_id, resource, consume, limits, use_stored_limits)
        if idempotency_key is not None or lease_ttl is not None or idempotency_ttl is not None:
            kept = receipt_terms(idempotency_key, idempotency_ttl, lease_ttl)
            request = request._replace(receipt=kept)
        terms = self._usual_terms
        if on_unavailable is not None or timeout is not None or on_error != "refund":
            mode, keeps = check_mode(on_unavailable), _keeps(on_error)
            terms = LeaseTerms(check_timeout(timeout), mode, self._fallback, keeps)
        return make(self.scope, request, terms)

    def _request(
        self,
        entity_id: str,
        resource: str,
        consume: Mapping[str, int],
        limits: Sequence[Limit] | None,
        use_stored_limits: bool,
        field: str = "consume",
    ) -> Request:
        if use_stored_limits:
            message = "use_stored_limits has no effect: stored limits are the default"
            warnings.warn(message, DeprecationWarning, stacklevel=4)
        return make_request(
            entity_id, resource, consume, limits, self._default, field, self._speculative
        )


def resuming(
    limiter: LimiterBase, token: str, lease_type: type[object]
) -> Coroutine[Any, Any, LeaseRecord]:
    """Find the lease of a token, as one of the class that belongs to the limiter."""
    if not isinstance(limiter, LimiterBase):
        reason = f"must be a limiter, not a {type(limiter).__name__}"
        raise ValidationError("limiter", limiter, reason)
    if not issubclass(lease_type, limiter._lease_type):
        name = limiter._lease_type.__name__
        reason = f"has leases of another class: write `{name}.from_token(limiter, token)`"
        raise ValidationError("limiter", limiter, reason)
    return resume_lease(limiter.scope, token, limiter._usual_terms, limiter._default)
