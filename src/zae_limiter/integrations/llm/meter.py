"""A meter follows one call of a model, and says what it is charged in the end.

the answer reports its usage                  that
the answer, or its stream, does not           the prompt as estimated, the answer as counted
the stream ends early, whoever ended it       the prompt, and what was streamed
the caller stops waiting for an answer        what was reserved: the model may have worked
the provider refuses, fails or is not there   nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from ...core.exceptions import LeaseExpiredError, RateLimiterUnavailable
from ...lease import Lease, SyncLease
from .dialect import Dialect, Heard
from .pace import ProviderPace, ProviderPaused
from .terms import LlmTerms
from .usage import TokenUsage

current_meter: ContextVar[CallMeter | None] = ContextVar("zae_limiter_llm_call", default=None)
_ERROR_STATUS = 400
# The application has ended the lease, or the store is down, which has been logged. Either way the
# answer has been paid for, and belongs to the caller.
_BORNE = (LeaseExpiredError, RateLimiterUnavailable)


class CallMeter:
    """The tokens of one call: as estimated, as counted while they came, as reported."""

    def __init__(
        self,
        terms: LlmTerms,
        pace: ProviderPace,
        dialect: Dialect,
        arguments: Mapping[str, Any],
        timeouts: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.resource = terms.resource_of(arguments)
        self.estimated = terms.estimate(arguments)
        self._terms = terms
        self._pace = pace
        self._dialect = dialect
        self._arguments = arguments
        self._timeouts = timeouts
        self._has_answered = False
        self._texts: list[str] = []
        self._reported: TokenUsage | None = None
        self._is_final = False

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments to call the SDK with."""
        return self._dialect.asked(dict(self._arguments))

    def seconds_to_hold(self) -> float:
        """Return how long the call must wait for its provider; raise if it may not."""
        seconds = self._pace.wait_s(self.resource)
        if seconds > (self._terms.timeout or 0.0):
            raise ProviderPaused(self.resource, seconds)
        return seconds

    def note_response(self, status: int, headers: Mapping[str, str]) -> None:
        """Note an answer of the provider, also one after which the SDK tries again."""
        self._has_answered = status < _ERROR_STATUS
        self._pace.note(self.resource, status, headers)

    def hear_answer(self, answer: Any) -> None:
        """Note a whole answer."""
        self._note(self._dialect.whole(answer))

    def hear_event(self, event: Any) -> bool:
        """Note an event of a stream, and tell whether the caller is to see it."""
        heard = self._dialect.event(event, self._arguments)
        self._note(heard)
        return not heard.is_ours

    def hear_error(self, error: BaseException) -> bool:
        """Note why a call has failed, and tell whether it is charged all the same."""
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        if isinstance(status, int):
            # LiteLLM makes a response of its own for its errors, without the provider's headers.
            told = getattr(error, "litellm_response_headers", None)
            self.note_response(status, told or getattr(response, "headers", {}))
        # An answer that the SDK could not use was made, and is paid for.
        if (completion := getattr(error, "completion", None)) is not None:
            self.hear_answer(completion)
        has_given_up = not isinstance(error, Exception) or isinstance(error, self._timeouts)
        return has_given_up or self._has_answered

    def amounts(self) -> dict[str, int]:
        """Return what the call is charged, by limit."""
        return dict(self._terms.cost(self._used()))

    def reserved_or_heard(self) -> dict[str, int]:
        """Return the charge of a call whose answer never came: nothing is known but what was
        reserved, unless the error told."""
        return {} if self._reported is None else self.amounts()

    def _used(self) -> TokenUsage:
        if self._reported is not None and self._is_final:
            return self._reported
        counted = self._terms.count_text("".join(self._texts)) if self._texts else 0
        if self._reported is None:
            return TokenUsage(self.estimated.input_tokens, counted)
        return self._reported._replace(output_tokens=max(self._reported.output_tokens, counted))

    def _note(self, heard: Heard) -> None:
        if heard.text:
            self._texts.append(heard.text)
        if heard.usage is None:
            return
        usage = heard.usage
        if not usage.input_tokens:
            # The last event of a stream may leave out what the first one told of the prompt, and
            # some servers never tell it: no prompt is free.
            known = self._reported or self.estimated
            usage = known._replace(output_tokens=usage.output_tokens)
        self._reported, self._is_final = usage, heard.is_final


async def settle_call(lease: Lease, amounts: dict[str, int]) -> None:
    """End a lease with what was used."""
    with suppress(*_BORNE):
        await lease.commit(**amounts)


async def refund_call(lease: Lease) -> None:
    """End a lease whose call came to nothing."""
    with suppress(*_BORNE):
        await lease.release()


def settle_call_blocking(lease: SyncLease, amounts: dict[str, int]) -> None:
    """End a blocking lease with what was used."""
    with suppress(*_BORNE):
        lease.commit(**amounts)


def refund_call_blocking(lease: SyncLease) -> None:
    """End a blocking lease whose call came to nothing."""
    with suppress(*_BORNE):
        lease.release()
