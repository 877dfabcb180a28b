"""Clients of AWS's services, and their errors in words of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..backends.dynamodb.wire.credentials import find_region, missing_credentials
from ..backends.dynamodb.wire.endpoint import endpoint_of_environment, parse_endpoint
from ..core.exceptions import StackOperationError

_RETRIES = {"mode": "standard", "max_attempts": 6}


class Aws:
    """The services of one region, or of another server that speaks their protocols. A client is
    made when it is first asked for. With `patience_s` a call is tried once, for so long."""

    def __init__(
        self,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        patience_s: float | None = None,
    ) -> None:
        self.region = region
        self.endpoint_url = endpoint_url
        self._patience_s = patience_s
        self._clients: dict[str, Any] = {}

    def __getitem__(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._open(service)
        return self._clients[service]

    def _open(self, service: str) -> Any:
        # Importing boto3 takes long, and many commands need none of it.
        import boto3
        import botocore.session

        if self.endpoint_url is not None:
            parse_endpoint(self.endpoint_url)
        session = botocore.session.Session()
        # boto3 alone knows no AWS_REGION, and would deploy where no client looks.
        region = find_region(session, self.region)
        with endpoint_of_environment():
            return boto3.Session(botocore_session=session).client(
                service,
                region_name=region,
                endpoint_url=self.endpoint_url,
                config=self._config(),
            )

    def _config(self) -> Any:
        from botocore.config import Config

        if self._patience_s is None:
            return Config(retries=_RETRIES)
        return Config(
            retries={"total_max_attempts": 1},
            connect_timeout=self._patience_s,
            read_timeout=self._patience_s,
        )

    def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        while self._clients:
            self._clients.popitem()[1].close()


@contextmanager
def explained(stack_name: str) -> Iterator[None]:
    """Raise errors of AWS, and of the way to it, as `StackOperationError`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StackOperationError(stack_name, aws_reason(error)) from error


def aws_reason(error: Exception) -> str:
    """Return what an error of boto3 says, and what to do where it does not say that."""
    from botocore.exceptions import NoCredentialsError

    return str(missing_credentials() if isinstance(error, NoCredentialsError) else error)


def error_code(error: BaseException | None) -> str:
    """Return the code of an error that AWS answered with; empty when it was another."""
    answer = getattr(error, "response", None) or {}
    code: str = answer.get("Error", {}).get("Code", "")
    return code
