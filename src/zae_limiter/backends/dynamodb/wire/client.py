"""Calls to DynamoDB, for both drivers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core.exceptions import StorageUnavailable
from ....ports.io import Io
from .errors import ConditionFailed, TransactionCanceled
from .meter import Meter
from .retry import Backoff, delays
from .server_clock import ServerClock
from .transport import Transport


class Client:
    """A transport with retries where they do no harm, and a meter.

    Sent again is only what DynamoDB was too busy for and what never left. A call whose
    outcome is unknown is the caller's to repeat or not.
    """

    def __init__(
        self, io: Io, transport: Transport, clock: ServerClock, backoff: Backoff | None = None
    ) -> None:
        self.io = io
        self._transport = transport
        self._backoff = backoff or Backoff()
        self.clock = clock
        self.meter = Meter()
        self._offset_ms = 0

    async def call(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """`operation` is DynamoDB's name for it, such as `UpdateItem`; parameters and result
        are its JSON. Raises as `errors` says."""
        self.meter.count_call(operation)
        waits_s = delays(self._backoff, self.io.entropy)
        deadline_ms = self.io.now_ms() + 1000 * self._backoff.deadline_s
        while True:
            try:
                return await self._once(operation, parameters)
            except StorageUnavailable as error:
                wait_s = next(waits_s, None)
                if error.ambiguous or not error.retryable or wait_s is None:
                    raise
                if self.io.now_ms() + 1000 * wait_s > deadline_ms:
                    raise
            await self.io.pause(wait_s)

    async def close(self) -> None:
        """Let go of connections. Closing twice does nothing."""
        await self._transport.close()

    async def _once(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        self.meter.count_request(operation)
        try:
            content = await self._transport.exchange(operation, parameters)
        except (ConditionFailed, TransactionCanceled):
            self.meter.count_refused(operation)
            raise
        finally:
            self._correct_clock()
        self.meter.count_units(operation, content)
        return content

    def _correct_clock(self) -> None:
        """Refills are reckoned by the time of the store, if ours is clearly wrong."""
        if self.clock.offset_ms != self._offset_ms:
            self._offset_ms = self.clock.offset_ms
            self.io.correct(self._offset_ms)
