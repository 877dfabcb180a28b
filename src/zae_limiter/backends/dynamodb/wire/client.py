"""The client makes calls to DynamoDB, for both drivers."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ....core.exceptions import StorageUnavailable
from ....local.breaker import FAIR_S, PROBE_S, Breaker, Turn
from ....local.deadline import current_deadline, left_s
from ....ports.io import Io
from ....ports.repository_protocol import StoreClosed
from ...store_url import USUAL_TOTAL_S
from .errors import (
    Busy,
    ConditionFailed,
    ResourceMissing,
    TransactionCanceled,
    WireError,
    hopeless,
    hopeless_now,
    is_answer,
)
from .meter import Meter
from .retry import Backoff, delays
from .server_clock import UNSURE_MS, ServerClock
from .transport import Transport

T = TypeVar("T")


class DynamoClient:
    """A client adds retries with backoff, and a meter, to a transport.

    A request is sent again only if DynamoDB was too busy for it, or if it never left this
    machine. Where the outcome is unknown, the caller decides whether the call is idempotent.

    `probe` is a harmless request, by which the breaker finds out whether DynamoDB is back.
    """

    def __init__(
        self,
        io: Io,
        transport: Transport,
        clock: ServerClock,
        backoff: Backoff | None = None,
        total_s: float = USUAL_TOTAL_S,
        breaker: Breaker | None = None,
    ) -> None:
        self.io = io
        self._transport = transport
        self._backoff = backoff or Backoff()
        self._total_s = total_s
        self.breaker = breaker or Breaker(0)
        self.probe: tuple[str, Mapping[str, Any]] | None = None
        self.clock = clock
        self.meter = Meter()
        self._offset_s = 0.0
        self._is_closed = False
        io.correct(0, UNSURE_MS)

    async def call(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an operation, such as `UpdateItem`. Parameters and result are its JSON.
        Raises as `errors` says."""
        return await self.in_time(self._call(operation, parameters))

    def in_time(self, flow: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Run requests that end within the total timeout together, or by the caller's deadline."""
        return self.io.within(flow, self._total_s) if current_deadline() is None else flow

    async def _call(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        began_ms = self.io.now_ms()
        try:
            return await self._once(operation, parameters, is_first=True)
        except StorageUnavailable as error:
            return await self._again(operation, parameters, error, began_ms)

    async def call_table(
        self, table: str, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Carry out an operation on the items of a table. A table that is gone cannot answer."""
        try:
            return await self.call(operation, parameters)
        except ResourceMissing as error:
            raise hopeless(f"There is no table {table}: {error}", error) from error

    async def _again(
        self,
        operation: str,
        parameters: Mapping[str, Any],
        error: StorageUnavailable,
        began_ms: int,
    ) -> dict[str, Any]:
        """Repeat a request until it succeeds, must not be repeated, or the backoff is used up."""
        backoff = self._backoff.patient if isinstance(error, Busy) else self._backoff
        deadline_ms = began_ms + 1000 * backoff.deadline_s
        for wait_s in delays(backoff, self.io.entropy):
            if error.ambiguous or not error.retryable:
                break
            if self.io.now_ms() + 1000 * wait_s > deadline_ms or wait_s >= left_s():
                break
            await self.io.pause(wait_s)
            try:
                return await self._once(operation, parameters, is_first=False)
            except StorageUnavailable as failure:
                error = failure
        raise error

    async def close(self) -> None:
        """Close the connections, and refuse later calls. Closing twice does nothing."""
        self._is_closed = True
        await self._transport.close()

    async def _once(
        self, operation: str, parameters: Mapping[str, Any], *, is_first: bool
    ) -> dict[str, Any]:
        if self._is_closed:
            raise StoreClosed("the store has been closed")
        if left_s() <= 0:
            raise hopeless_now(f"{operation}: the call has no time left")
        if self.breaker.is_open:
            await self._pass_breaker()
        self.meter.count_request(operation, is_first=is_first)
        began_s = time.monotonic()
        try:
            content = await self._exchange(operation, parameters)
        except (ConditionFailed, TransactionCanceled):
            self.meter.count_refused(operation)
            raise
        finally:
            self.meter.count_seconds(operation, time.monotonic() - began_s)
            if self.clock.offset_s != self._offset_s:
                self._correct_clock()
        if "ConsumedCapacity" in content:
            self.meter.count_units(operation, content)
        return content

    async def _exchange(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, and tell the breaker whether DynamoDB answered."""
        began_s = time.monotonic()
        try:
            content = await self._transport.exchange(operation, parameters)
        except StorageUnavailable as error:
            if is_answer(error):
                self.breaker.succeeded()
            elif error.retryable and not _was_cut_short(error, began_s):
                self.breaker.failed(error)
            raise
        except WireError:
            self.breaker.succeeded()
            raise
        self.breaker.succeeded()
        return content

    async def _pass_breaker(self) -> None:
        """Raise if the breaker is open, unless it is time to probe and DynamoDB answers."""
        turn = self.breaker.enter()
        if turn is Turn.PROBE:
            try:
                await self.io.within(self._probe(), min(PROBE_S, left_s()))
            except BaseException:
                self.breaker.give_up_probe()
                raise
        if self.breaker.is_open:
            message = f"DynamoDB does not answer, and was not asked again: {self.breaker.cause}"
            raise hopeless_now(message)

    async def _probe(self) -> None:
        if self.probe is None:
            self.breaker.succeeded()
            return
        try:
            await self._exchange(*self.probe)
        except WireError:
            return
        except StorageUnavailable as error:
            # A probe has little time. Without this, one that is cut short would not count.
            if self.breaker.is_open:
                self.breaker.failed(error)

    def _correct_clock(self) -> None:
        """Set our time to the server's, if ours is clearly wrong: buckets refill by that time."""
        self._offset_s = self.clock.offset_s
        self.io.correct(self.clock.offset_ms, UNSURE_MS)


def _was_cut_short(error: StorageUnavailable, began_s: float) -> bool:
    """Tell whether a request had so little time that its failure says nothing of DynamoDB."""
    return isinstance(error.cause, TimeoutError) and time.monotonic() - began_s < FAIR_S
