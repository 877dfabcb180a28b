"""This transport sends calls through botocore, for applications that patch or trace it.

botocore takes a multiple of the CPU time of our own transport. In return, everything works that
hooks into botocore, such as moto's `mock_aws` or X-Ray. botocore's own retries are off.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any, NoReturn

from botocore import exceptions, xform_name
from botocore.config import Config
from botocore.parsers import ResponseParserError

from ....local.fork_safety import new_lock
from ....local.steady_time import steady_s
from .credentials import find_region, missing_credentials
from .edge import Limits
from .endpoint import endpoint_of_environment
from .errors import (
    ErrorAnswer,
    ErrorRow,
    RequestInvalid,
    exception_of,
    hopeless,
    lost,
    raise_ours,
    unsent,
)
from .server_clock import ServerClock


class BotocoreTransport:
    """This transport blocks and never suspends. Threads share one client; a forked child makes
    its own."""

    def __init__(
        self,
        clock: ServerClock,
        region: str | None = None,
        endpoint_url: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._clock = clock
        self._region = region
        self._endpoint_url = endpoint_url
        self._limits = limits or Limits()
        self._lock = new_lock()
        self._client: Any = None
        self._pid = 0

    async def exchange(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        try:
            client = self._current_client()
            sent_s = steady_s()
            response = getattr(client, xform_name(operation))(**parameters)
        except Exception as error:
            raise_translated(operation, error)
        return content_of(response, self._clock, sent_s)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.close()

    def _current_client(self) -> Any:
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                import botocore.session

                self._client = new_client(
                    botocore.session.Session(),
                    self._region,
                    self._endpoint_url,
                    Config(**settings(self._limits)),
                )
                self._pid = os.getpid()
            return self._client


def new_client(session: Any, region: str | None, endpoint_url: str | None, config: Any) -> Any:
    """Open a client of a session. Times in answers stay the numbers that were sent."""
    factory = session.get_component("response_parser_factory")
    factory.set_parser_defaults(timestamp_parser=lambda value: value)
    region = find_region(session, region)
    with endpoint_of_environment():
        return session.create_client(
            "dynamodb", region_name=region, endpoint_url=endpoint_url, config=config
        )


def settings(limits: Limits) -> dict[str, Any]:
    """Return botocore's options for these limits, and for one attempt."""
    return {
        "connect_timeout": limits.connect_timeout_s,
        "read_timeout": limits.read_timeout_s,
        "max_pool_connections": limits.connections,
        "retries": {"total_max_attempts": 1},
    }


def content_of(response: dict[str, Any], clock: ServerClock, sent_s: float) -> dict[str, Any]:
    """Return the operation's own part of a response, and show its date to the clock."""
    headers = response.pop("ResponseMetadata", {}).get("HTTPHeaders", {})
    clock.observe(headers.get("date"), sent_s, steady_s())
    return response


def raise_translated(operation: str, error: Exception, rows: tuple[ErrorRow, ...] = ()) -> NoReturn:
    """Raise our exception for an error of botocore. `rows` come before the rows for all drivers."""
    if not isinstance(error, exceptions.ClientError):
        raise_ours(error, (*rows, *_ERRORS), operation)
    if error.operation_name != operation:
        raise hopeless(f"AWS credentials cannot be had: {error}", error) from error
    raise exception_of(_error_answer(operation, error.response)) from error


def _error_answer(operation: str, response: Mapping[str, Any]) -> ErrorAnswer:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    error = response.get("Error", {})
    # botocore puts the status in place of a code that is missing.
    code = "" if error.get("Code") == str(status) else error.get("Code", "")
    return ErrorAnswer(operation, status, code, error.get("Message", ""), response)


def _invalid(message: str, error: BaseException) -> Exception:
    return RequestInvalid(ErrorAnswer("", 0, type(error).__name__, message))


def _tls(message: str, error: BaseException) -> Exception:
    inner = getattr(error, "kwargs", {}).get("error")
    distrusted = [inner, *getattr(inner, "args", ())]
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in distrusted):
        return hopeless(message, error)
    return lost(message, error)


_ERRORS: tuple[ErrorRow, ...] = (
    (exceptions.ParamValidationError, _invalid),
    (exceptions.NoCredentialsError, lambda message, error: missing_credentials()),
    (exceptions.SSLError, _tls),
    (exceptions.ConnectionError, unsent),
    (exceptions.HTTPClientError, lost),
    (exceptions.ChecksumError, lost),
    (ResponseParserError, lost),
    (exceptions.BotoCoreError, hopeless),
)
