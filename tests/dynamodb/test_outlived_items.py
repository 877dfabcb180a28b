"""Corrections of items that have gone: with lost answers, and with a server that expires items."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from tests.support.servers.chaos import Act, ChaosProxy, DropAnswer, Pass, Reset
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable, own_table
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.bucket_codec import bucket_key
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.testing import ManualClock

TPS = Limit.per_second("tps", 1000)
_TTL_PATIENCE_S = 150


@pytest.mark.parametrize("fault", [DropAnswer(), Reset()], ids=["lost answer", "reset"])
def test_one_fault_while_an_item_is_made_anew_loses_no_debt(
    fault: Act, proxy: ChaosProxy, table: OwnTable
) -> None:
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    with SyncRepository.open(url=url, clock=ManualClock()) as repository:
        limiter = SyncRateLimiter(repository)
        for moment in itertools.count():
            proxy.use(())
            key = f"key-{moment}"
            address = BucketAddress(repository.namespace_id, key, "gpt-4")
            with limiter.acquire(key, "gpt-4", {"tps": 1}, limits=[TPS]) as lease:
                table.call("DeleteItem", Key=bucket_key(address))
                lease.adjust(tps=3000)
                proxy.requests.clear()
                proxy.use([*[Pass()] * moment, fault])
            (state,) = repository.get_buckets(key, "gpt-4")
            assert (state.tokens_milli, state.total_consumed_milli) == (-2_000_000, 3_000_000)
            if len(proxy.requests) <= moment:
                break
    assert moment > 2


@pytest.mark.slow
async def test_a_debt_stays_when_a_server_expires_the_item_during_the_block(
    extenddb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert extenddb.access_key is not None
    assert extenddb.secret_key is not None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", extenddb.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", extenddb.secret_key)
    with own_table(extenddb) as table:
        ttl = {"Enabled": True, "AttributeName": "ttl"}
        table.call("UpdateTimeToLive", TimeToLiveSpecification=ttl)
        async with await Repository.open(url=table.url) as repository:
            limiter = RateLimiter(repository)
            async with limiter.acquire("key", "gpt-4", {"tps": 1}, limits=[TPS]) as lease:
                deadline = time.monotonic() + _TTL_PATIENCE_S
                while [item for item in table.items() if "BUCKET#" in item["PK"]["S"]]:
                    assert time.monotonic() < deadline, "nothing expired"
                    await asyncio.sleep(1)
                await lease.adjust(tps=500_000)
            left = await limiter.available("key", "gpt-4", [TPS])
            assert -499_000 <= left["tps"] < -400_000
