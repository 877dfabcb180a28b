"""This transport sends calls through aiobotocore: `botocore_transport` for asyncio."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.httpsession import ClientConnectorError
from aiobotocore.session import AioSession
from botocore import exceptions, xform_name

from ....local.deadline import answer_ends_s
from ....local.steady_time import steady_s
from ....runtime.asyncio_driver import hold
from .botocore_transport import content_of, new_client, raise_translated, settings
from .edge import Limits
from .errors import ErrorRow, lost, unsent
from .per_loop import PerLoop
from .server_clock import ServerClock


class AiobotocoreTransport:
    """This transport opens one aiobotocore client for each event loop."""

    def __init__(
        self,
        clock: ServerClock,
        region: str | None = None,
        endpoint_url: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._clock = clock
        config = AioConfig(**settings(limits or Limits()))
        self._clients: PerLoop[Any] = PerLoop(
            lambda: new_client(AioSession(), region, endpoint_url, config)
        )

    async def exchange(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return await hold(asyncio.ensure_future(self._exchange(operation, parameters)))

    async def _exchange(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        try:
            # To make the first client takes seconds, which are not the store's.
            left_s = _left_for_answer_s()
            client = await self._clients.get()
            async with asyncio.timeout(left_s):
                sent_s = steady_s()
                response = await getattr(client, xform_name(operation))(**parameters)
        except Exception as error:
            raise_translated(operation, error, _ERRORS)
        return content_of(response, self._clock, sent_s)

    async def close(self) -> None:
        await self._clients.close()


def _left_for_answer_s() -> float | None:
    """Return the seconds by which the answer must be whole. botocore's own timeouts begin anew
    with each byte."""
    left_s = answer_ends_s() - time.monotonic()
    return left_s if left_s < math.inf else None


def _connection(message: str, error: BaseException) -> Exception:
    """Tell a connection that was never made from a broken one: aiobotocore names both alike."""
    inner = getattr(error, "kwargs", {}).get("error")
    never_made = isinstance(inner, ClientConnectorError)
    return (unsent if never_made else lost)(message, error)


_ERRORS: tuple[ErrorRow, ...] = (
    (TimeoutError, lost),
    (exceptions.EndpointConnectionError, _connection),
)
