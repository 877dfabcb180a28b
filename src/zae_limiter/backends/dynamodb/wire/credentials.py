"""botocore finds region, endpoint, credentials and proxy in the places that boto3 reads."""

from __future__ import annotations

import logging
import math
import os
import ssl
import threading
import time
from dataclasses import replace
from typing import Any, NamedTuple

from ....core.exceptions import StorageUnavailable, ValidationError
from ....local.fork_safety import new_lock
from .endpoint import Endpoint, endpoint_of_environment, parse_endpoint
from .errors import ErrorRow, hopeless, hopeless_now, raise_ours
from .proxy import parse_proxy
from .signer import Credentials

# Credentials know minutes ahead that they expire. Asking them for each request would take
# longer than signing it.
_TRUSTED_S = 1.0
# Credentials that live for minutes always want to be renewed. They are, but not for each request,
# and no request waits for that while they are good for at least this long.
_GOOD_S = 20
_RENEWED_EVERY_S = 15.0
logger = logging.getLogger("zae_limiter")


class Grant(NamedTuple):
    """A grant holds all that a request needs besides its content."""

    region: str
    endpoint: Endpoint
    credentials: Credentials


class Access:
    """`Access` finds region, endpoint and credentials when they are first needed, and renews
    credentials that expire. Each repository has one; threads may share it.

    `service`: "dynamodb", or "dynamodbstreams", which has endpoints of its own.
    """

    def __init__(
        self,
        region: str | None = None,
        endpoint_url: str | None = None,
        session: Any = None,
        service: str = "dynamodb",
    ) -> None:
        self._service = service
        self._region = region
        self._endpoint_url = endpoint_url
        self._session = session
        self._lock = new_lock()
        self._found: tuple[str, Endpoint, Any] | None = None
        self._last: tuple[Grant, float] | None = None
        self._renewed_at_s = -math.inf
        self._renewing_pid = 0

    def ready(self) -> Grant | None:
        """Return a grant if that takes no waiting: all is found and nothing is about to expire."""
        now_s = time.monotonic()
        if self._last is not None and now_s < self._last[1]:
            return self._last[0]
        if self._found is None:
            return None
        region, endpoint, credentials = self._found
        refresh_needed = getattr(credentials, "refresh_needed", None)
        if refresh_needed is not None and refresh_needed():
            if self._last is None or refresh_needed(_GOOD_S):
                return None
            self._renew(now_s)
            self._last = self._last[0], now_s + _TRUSTED_S
            return self._last[0]
        grant = Grant(region, endpoint, _frozen(credentials))
        self._last = grant, now_s + _TRUSTED_S
        return grant

    def obtain(self) -> Grant:
        """Return a grant. This may take a while: botocore asks files, processes and services."""
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            HTTPClientError,
            MetadataRetrievalError,
            ProfileNotFound,
        )

        try:
            region, endpoint, credentials = self._find()
            grant = Grant(region, endpoint, _frozen(credentials))
            self._last = grant, -math.inf
            return grant
        except ProfileNotFound as error:
            raise ValidationError(
                "AWS_PROFILE", os.environ.get("AWS_PROFILE"), str(error)
            ) from None
        except (BotoCoreError, ClientError) as error:
            rows: tuple[ErrorRow, ...] = (
                (HTTPClientError, hopeless_now),
                (MetadataRetrievalError, hopeless_now),
                (Exception, hopeless),
            )
            raise_ours(error, rows, "AWS credentials cannot be had")

    def _renew(self, now_s: float) -> None:
        """Renew the credentials in a thread, unless that was tried lately or is under way."""
        is_due = now_s - self._renewed_at_s >= _RENEWED_EVERY_S
        if is_due and self._renewing_pid != os.getpid():
            self._renewed_at_s, self._renewing_pid = now_s, os.getpid()
            threading.Thread(target=self._obtain_quietly, daemon=True).start()

    def _obtain_quietly(self) -> None:
        try:
            self.obtain()
        except Exception as error:
            logger.warning("AWS credentials were not renewed, the old ones still hold: %s", error)
        finally:
            self._renewing_pid = 0

    def session(self) -> Any:
        """Return the botocore session, and open it first if needed."""
        if self._session is None:
            import botocore.session

            self._session = botocore.session.Session()
        return self._session

    def _find(self) -> tuple[str, Endpoint, Any]:
        """Ask botocore once (single-flight): threads that come meanwhile wait for the answer."""
        with self._lock:
            if self._found is None:
                session = self.session()
                region = find_region(session, self._region)
                url = self._endpoint_url or _find_endpoint_url(session, region, self._service)
                endpoint = _with_route(parse_endpoint(url), session)
                self._found = region, endpoint, _find_credentials(session)
            return self._found


def find_region(session: Any, region: str | None = None) -> str:
    """Return the region that was given, or that of the environment, or that of the profile."""
    found = region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not found:
        raise ValidationError(
            "region",
            None,
            "none is set: pass region=, set AWS_REGION, or configure a profile;"
            " to name another store, pass url= or set ZAEL_URL",
        )
    return str(found)


def _find_endpoint_url(session: Any, region: str, service: str) -> str:
    # botocore's client knows AWS_ENDPOINT_URL[_DYNAMODB], partitions, FIPS and dual stack.
    with endpoint_of_environment():
        client = session.create_client(service, region_name=region)
    try:
        return str(client.meta.endpoint_url)
    finally:
        client.close()


def _with_route(endpoint: Endpoint, session: Any) -> Endpoint:
    """Give an endpoint the authorities that boto3 trusts and the proxy that boto3 would use."""
    from botocore.httpsession import get_cert_path
    from botocore.utils import get_environ_proxies

    ca_bundle = session.get_config_variable("ca_bundle") or get_cert_path(True)
    proxy_url = get_environ_proxies(endpoint.origin).get(endpoint.scheme)
    proxy = parse_proxy(proxy_url, ca_bundle) if proxy_url else None
    if endpoint.scheme == "http":
        return replace(endpoint, proxy=proxy)
    return replace(endpoint, proxy=proxy, tls=ssl.create_default_context(cafile=ca_bundle))


def _find_credentials(session: Any) -> Any:
    credentials = session.get_credentials()
    if credentials is None:
        raise missing_credentials()
    return credentials


def missing_credentials() -> StorageUnavailable:
    """Build the error for a machine on which botocore finds no credentials."""
    return hopeless(
        "No AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
        " choose an AWS_PROFILE, or give the machine a role"
    )


def _frozen(credentials: Any) -> Credentials:
    frozen = credentials.get_frozen_credentials()
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token)
