"""This module turns errors of the limiter into HTTP answers.

    429  a limit refused, and waiting helps     413  the request is above some limit's capacity
    400  a bad amount or entity id              503  the store is down, and the mode is to block;
                                                     or the provider of a model wants no calls

Bodies are `application/problem+json`. Nothing in an answer tells of ancestors, unless allowed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ..core.exceptions import RateLimiterUnavailable, ValidationError
from ..core.rate_limit_exceeded import RateLimitExceeded
from .http_fields import (
    Expose,
    Fields,
    policy_names,
    rate_limit_fields,
    retry_after,
    shown_statuses,
)
from .llm.pace import ProviderPaused

_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
_QUOTA_EXCEEDED = f"{_PROBLEM_TYPES}quota-exceeded"
_REDUCED_CAPACITY = f"{_PROBLEM_TYPES}temporary-reduced-capacity"
_OUTAGE_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that replaces the application's own."""

    status: int
    fields: Fields
    body: bytes

    @property
    def status_line(self) -> str:
        """The status as WSGI wants it: `429 Too Many Requests`."""
        return f"{self.status} {HTTPStatus(self.status).phrase}"

    def body_for(self, method: str | None) -> bytes:
        """Return the body for a request of a method. An answer to HEAD has none: some servers
        would send it, and clients read it as the beginning of the next answer."""
        return b"" if method == "HEAD" else self.body


def answer_to(
    error: BaseException, expose: Expose = "own", *, legacy: bool = False
) -> HttpAnswer | None:
    """Return the answer to an error; None when the error is the application's own business, such
    as limits that nobody has configured."""
    if isinstance(error, RateLimitExceeded):
        return _refusal(error, expose, legacy)
    if isinstance(error, RateLimiterUnavailable):
        detail = "The limits cannot be checked now."
        problem = _problem(503, "Service unavailable", detail, _REDUCED_CAPACITY)
        return _answer(503, [("Retry-After", retry_after(_OUTAGE_RETRY_SECONDS) or "1")], problem)
    if isinstance(error, ProviderPaused):
        seconds = retry_after(error.retry_after_seconds) or "1"
        detail = f"The model may be called again in {seconds} s."
        problem = _problem(503, "Service unavailable", detail, _REDUCED_CAPACITY)
        return _answer(503, [("Retry-After", seconds)], problem)
    if isinstance(error, ValidationError) and _is_from_caller(error):
        return _answer(400, [], _problem(400, "Bad request", str(error)))
    return None


def _is_from_caller(error: ValidationError) -> bool:
    """True for an amount or an entity id, which requests carry. An unknown limit, an empty
    configuration or a bad resource name are mistakes of the application."""
    return error.field == "entity_id" or error.field.startswith("consume[")


def _refusal(refused: RateLimitExceeded, expose: Expose, legacy: bool) -> HttpAnswer:
    fields = rate_limit_fields(refused.statuses, expose, legacy=legacy)
    shown = shown_statuses(refused.statuses, expose)
    named = zip(policy_names(shown), shown, strict=True)
    violated = [name for name, status in named if status.exceeded]
    if not refused.retryable:
        detail = "The request is larger than a limit can ever cover."
        problem = _problem(413, "Content too large", detail)
        return _answer(413, fields, {**problem, "violated-policies": violated})
    seconds = retry_after(refused.retry_after_seconds) or "1"
    detail = f"The request may pass in {seconds} s."
    problem = _problem(429, "Quota exceeded", detail, _QUOTA_EXCEEDED)
    return _answer(
        429, [("Retry-After", seconds), *fields], {**problem, "violated-policies": violated}
    )


def _problem(status: int, title: str, detail: str, kind: str = "about:blank") -> dict[str, Any]:
    return {"type": kind, "title": title, "status": status, "detail": detail}


def _answer(status: int, fields: Fields, problem: dict[str, Any]) -> HttpAnswer:
    body = json.dumps(problem).encode()
    about = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(body)))]
    return HttpAnswer(status, [*about, *fields], body)
