"""The edge of the asyncio driver where there is a proxy: aiohttp knows how to go through."""

from __future__ import annotations

import asyncio
from functools import partial

import aiohttp
from yarl import URL

from ....runtime.asyncio_driver import hold
from .edge import Limits
from .endpoint import Endpoint
from .errors import Row, hopeless, lost, raise_ours, unsent
from .per_loop import PerLoop
from .protocol import Answer
from .request import Request

_ERRORS: tuple[Row, ...] = (
    (aiohttp.ClientConnectorCertificateError, hopeless),
    (aiohttp.ClientConnectorError, unsent),
    (aiohttp.ClientHttpProxyError, unsent),
    (aiohttp.ConnectionTimeoutError, unsent),
    (aiohttp.ClientError, lost),
    (OSError, lost),
)


# Gateways forget idle connections after some minutes, without a word to either end.
_KEPT_IDLE_S = 60.0


class AiohttpEdge:
    """Sends through aiohttp, with one session for each event loop."""

    def __init__(self, endpoint: Endpoint, limits: Limits | None = None) -> None:
        self._host = endpoint.host
        self._proxy = endpoint.proxy
        self._url = URL(endpoint.origin + endpoint.path, encoded=True)
        self._sessions = PerLoop(partial(_new_session, endpoint, limits or Limits()))

    async def send(self, request: Request) -> Answer:
        return await hold(asyncio.ensure_future(self._send(request)))

    async def _send(self, request: Request) -> Answer:
        session = await self._sessions.get()
        try:
            async with session.post(
                self._url,
                data=request.body,
                headers=request.headers(),
                allow_redirects=False,
                proxy=self._proxy,
            ) as response:
                return Answer(response.status, response.headers, await response.read())
        except Exception as error:
            raise_ours(error, _ERRORS, self._host)

    async def close(self) -> None:
        await self._sessions.close()


def _new_session(endpoint: Endpoint, limits: Limits) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=limits.connections,
            keepalive_timeout=_KEPT_IDLE_S,
            ssl=endpoint.tls or True,
        ),
        timeout=aiohttp.ClientTimeout(
            connect=limits.connect_timeout_s, sock_read=limits.read_timeout_s
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "User-Agent"),
        auto_decompress=False,
    )
