"""A client of an SDK whose calls are charged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...core.exceptions import ValidationError
from ...lease import Lease, SyncLease
from ...limiter import RateLimiter
from ...sync_limiter import SyncRateLimiter
from ..rule import Reservation
from .dialect import Dialect, wants_stream
from .meter import (
    CallMeter,
    current_meter,
    refund_call,
    refund_call_blocking,
    settle_call,
    settle_call_blocking,
)
from .pace import ProviderPace
from .streams import MeteredStream, SyncMeteredStream
from .terms import LlmTerms


@dataclass(frozen=True)
class LlmCharge:
    """The entity that is charged for calls, by which limiter and under which terms."""

    limiter: RateLimiter | SyncRateLimiter
    entity_id: str
    terms: LlmTerms = field(default_factory=LlmTerms)
    pace: ProviderPace = field(default_factory=ProviderPace)
    timeouts: tuple[type[BaseException], ...] = ()

    def meter(
        self, dialect: Dialect, given: tuple[Any, ...], arguments: Mapping[str, Any]
    ) -> CallMeter:
        """Return the meter of one call."""
        if given:
            raise ValidationError("arguments", given, "must be given by name")
        return CallMeter(self.terms, self.pace, dialect, arguments, self.timeouts)

    async def begin(self, meter: CallMeter) -> Lease:
        """Wait for the provider if need be, and charge the estimate of a call."""
        assert isinstance(self.limiter, RateLimiter)
        waited_s = meter.seconds_to_hold()
        if waited_s:
            await asyncio.sleep(waited_s)
        return await self.limiter.reserve(**self._reservation(meter, waited_s))

    @asynccontextmanager
    async def calling(self, meter: CallMeter) -> AsyncIterator[Lease]:
        """Charge the estimate, and run a block that calls the SDK. A block that fails ends the
        lease."""
        lease = await self.begin(meter)
        token = current_meter.set(meter)
        try:
            yield lease
        except BaseException as error:
            if meter.hear_error(error):
                await settle_call(lease, meter.reserved_or_heard())
            else:
                await refund_call(lease)
            raise
        finally:
            current_meter.reset(token)

    @contextmanager
    def calling_blocking(self, meter: CallMeter) -> Iterator[SyncLease]:
        """Wait for the provider if need be, charge the estimate, and run a block that calls the SDK
        in a thread. A block that fails ends the lease."""
        assert isinstance(self.limiter, SyncRateLimiter)
        waited_s = meter.seconds_to_hold()
        if waited_s:
            time.sleep(waited_s)
        lease = self.limiter.reserve(**self._reservation(meter, waited_s))
        token = current_meter.set(meter)
        try:
            yield lease
        except BaseException as error:
            if meter.hear_error(error):
                settle_call_blocking(lease, meter.reserved_or_heard())
            else:
                refund_call_blocking(lease)
            raise
        finally:
            current_meter.reset(token)

    def _reservation(self, meter: CallMeter, waited_s: float) -> Reservation:
        terms = self.terms
        if terms.timeout is not None and waited_s:
            terms = replace(terms, timeout=terms.timeout - waited_s)
        return terms.reservation(self.entity_id, meter.resource, meter.estimated)

    async def call(
        self, dialect: Dialect, method: Callable[..., Any], *given: Any, **arguments: Any
    ) -> Any:
        """Call a method of the SDK, charged; a stream is charged until it ends."""
        meter = self.meter(dialect, given, arguments)
        async with self.calling(meter) as lease:
            answer = await method(**meter.asked)
        if wants_stream(arguments):
            return MeteredStream(answer, meter, lease)
        meter.hear_answer(answer)
        await settle_call(lease, meter.amounts())
        return answer

    def call_blocking(
        self, dialect: Dialect, method: Callable[..., Any], *given: Any, **arguments: Any
    ) -> Any:
        """Call a method of the SDK in a thread, charged; a stream is charged until it ends."""
        meter = self.meter(dialect, given, arguments)
        with self.calling_blocking(meter) as lease:
            answer = method(**meter.asked)
        if wants_stream(arguments):
            return SyncMeteredStream(answer, meter, lease)
        meter.hear_answer(answer)
        settle_call_blocking(lease, meter.amounts())
        return answer


class LimitedClient:
    """The methods of an SDK's client that are charged. Others are refused: they would cost nothing,
    and nobody would notice."""

    def __init__(
        self,
        target: Any,
        charge: LlmCharge,
        methods: Mapping[str, Dialect],
        path: str = "",
    ) -> None:
        self._target = target
        self._charge = charge
        self._methods = methods
        self._path = path

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._charge.entity_id!r}>"

    def for_entity(self, entity_id: str) -> LimitedClient:
        """Return a client whose calls are charged to another entity. It costs next to nothing."""
        charge = replace(self._charge, entity_id=entity_id)
        return type(self)(self._target, charge, self._methods, self._path)

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}" if self._path else name
        dialect = self._methods.get(path)
        if dialect is not None:
            return self._charged(path, getattr(self._target, name), dialect)
        if any(known.startswith(f"{path}.") for known in self._methods):
            return type(self)(getattr(self._target, name), self._charge, self._methods, path)
        known = ", ".join(self._methods)
        raise AttributeError(f"{path} is not charged, so it is not offered here; {known} are")

    def _charged(self, path: str, method: Callable[..., Any], dialect: Dialect) -> Any:
        is_async = isinstance(self._charge.limiter, RateLimiter)
        call = self._charge.call if is_async else self._charge.call_blocking
        return partial(call, dialect, method)


def check_limiter(client: object, limiter: object, *, is_async: bool) -> None:
    """Refuse a limiter of the other driver."""
    wanted = RateLimiter if is_async else SyncRateLimiter
    if not isinstance(limiter, wanted):
        name, given = type(client).__name__, type(limiter).__name__
        raise ValidationError("limiter", limiter, f"of {name} must be a {wanted.__name__}: {given}")


def listen_to(client: Any, *, is_async: bool) -> None:
    """Let the meter of the current call hear every response, also those that the SDK answers with
    another try. Without such a hook, it hears the last one."""
    transport = getattr(client, "_client", None)
    hooks = getattr(transport, "event_hooks", None)
    if not isinstance(hooks, dict):
        return
    heard = hooks.setdefault("response", [])
    hook = _hear if is_async else _hear_blocking
    if hook not in heard:
        heard.append(hook)


def _hear_blocking(response: Any) -> None:
    meter = current_meter.get()
    if meter is not None:
        meter.note_response(response.status_code, response.headers)


async def _hear(response: Any) -> None:
    _hear_blocking(response)
