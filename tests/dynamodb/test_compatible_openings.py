"""The existing package and ours open one table, each in its own ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.dynamodb import new_name
from tests.support.peer.client import Peer, PeerError
from tests.support.servers.processes import Server
from zae_limiter import Limit, RateLimiter, Repository

pytestmark = pytest.mark.slow

day = Limit.per_day


@pytest.fixture
async def ours(dynamodb: Server, table_name: str, peer: Peer) -> AsyncIterator[Repository]:
    peer.repository("ping")
    async with await Repository.open(
        stack=table_name, region=dynamodb.region, endpoint_url=dynamodb.url, config_cache_ttl=0
    ) as repository:
        yield repository


async def test_a_limiter_made_by_its_stack_s_name_finds_the_records_of_theirs(
    peer: Peer, ours: Repository
) -> None:
    """Neither looks the namespace up: both use the id `default` itself."""
    name = f"e-{new_name()[5:15]}"
    peer.call("unopened", "set_limits", name, [day("rpm", 5)], "gpt-4")
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        limiter = RateLimiter(
            name=ours.stack_name, region=ours.region, endpoint_url=ours.endpoint_url
        )
    async with limiter:
        assert await limiter.get_limits(name, "gpt-4") == [day("rpm", 5)]
        async with limiter.acquire(name, "gpt-4", {"rpm": 4}):
            pass
    assert peer.call("unopened", "available", name, "gpt-4") == {"rpm": 1}
    assert await ours.get_limits(name, "gpt-4") == []


async def test_their_clients_are_kept_out_while_a_table_is_migrated(
    peer: Peer, ours: Repository
) -> None:
    before = await ours.get_version_record()
    assert before is not None
    peer.call("opened_by", "connect")
    try:
        await ours.set_version_record("0.9.0", client_min_version="0.18.0")
        for way in ("open", "connect"):
            with pytest.raises(PeerError, match="VersionMismatchError"):
                peer.call("opened_by", way)
    finally:
        await ours.set_version_record("0.10.0", client_min_version=before["client_min_version"])
    peer.call("opened_by", "connect")
