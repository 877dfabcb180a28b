"""The Lambda's environment, on a table and a bucket of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3_bucket import Bucket, serve_bucket
from tests.support.servers.chaos import ChaosProxy
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable
from zae_limiter import SyncRepository
from zae_limiter_aggregator import logs
from zae_limiter_aggregator.handler import opened_work


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with serve_bucket() as made:
        yield made


@pytest.fixture
def proxy(dynamodb: Server) -> Iterator[ChaosProxy]:
    with ChaosProxy(dynamodb.url) as made:
        yield made


@pytest.fixture
def deployed(
    table: OwnTable, bucket: Bucket, proxy: ChaosProxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A Lambda whose table is behind the proxy."""
    values = {
        "TABLE_NAME": table.name,
        "SNAPSHOT_WINDOWS": "hourly,daily,monthly",
        "ENABLE_ARCHIVAL": "true",
        "ARCHIVE_BUCKET_NAME": "archive",
        "AWS_REGION": table.server.region,
        "AWS_DEFAULT_REGION": table.server.region,
        "AWS_ENDPOINT_URL_DYNAMODB": proxy.url,
        "AWS_ENDPOINT_URL_S3": bucket.url,
        "AWS_MAX_ATTEMPTS": "1",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    opened_work.cache_clear()
    yield
    opened_work.cache_clear()
    logs.PACKAGE_LOGGER.handlers.clear()
    logs.PACKAGE_LOGGER.propagate = True


@pytest.fixture
def repository(table: OwnTable) -> Iterator[SyncRepository]:
    with SyncRepository.open("lambda", url=table.url) as opened:
        yield opened
