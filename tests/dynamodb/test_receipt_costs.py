"""What charges with a receipt cost, asked of the server: only calls that ask for one pay for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from bench.costs import Cost
from bench.item_size import item_bytes
from bench.scenarios import Stage

from tests.support.drivers import Driver
from tests.support.dynamodb import IS_EXACT, new_name
from tests.support.receipts import from_token
from tests.support.servers.tables import OwnTable
from zae_limiter import Lease, RateLimiter, RateLimitExceeded
from zae_limiter.core.bucket import BucketAddress

Story = Callable[[Stage], Awaitable[None]]


@pytest.fixture(params=["asyncio", "blocking"])
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture
async def stage(facade: Driver, table: OwnTable) -> AsyncIterator[Stage]:
    stage = Stage(facade, table.url, new_name(), limit_count=2)
    await stage.process()
    await stage.limiter.set_system_defaults(stage.limits)
    yield stage
    for repository in stage.opened:
        await repository.close()


async def reserve(limiter: RateLimiter, stage: Stage, key: str | None = None) -> Lease:
    return await limiter.reserve("key", "gpt-4", stage.amounts(), idempotency_key=key, lease_ttl=60)


async def _charge(stage: Stage) -> None:
    await stage.take()
    with stage.bill():
        lease = await reserve(stage.limiter, stage)
    await lease.commit()


async def _charge_two_levels(stage: Stage) -> None:
    await stage.chain(2)
    await stage.take()
    with stage.bill():
        lease = await reserve(stage.limiter, stage)
    await lease.commit()


async def _charge_unseen(stage: Stage) -> None:
    await stage.take()
    scope = stage.opened[0].scope
    scope.local.images.discard(BucketAddress(scope.namespace_id, "key", "gpt-4"))
    with stage.bill():
        lease = await reserve(stage.limiter, stage)
    await lease.commit()


async def _commit(stage: Stage) -> None:
    await stage.take()
    lease = await reserve(stage.limiter, stage)
    with stage.bill():
        await lease.commit()


async def _commit_a_correction(stage: Stage) -> None:
    await stage.take()
    lease = await reserve(stage.limiter, stage)
    with stage.bill():
        await lease.commit(rpm=5)


async def _release(stage: Stage) -> None:
    await stage.take()
    lease = await reserve(stage.limiter, stage)
    with stage.bill():
        await lease.release()


async def _take_up(stage: Stage) -> None:
    await stage.take()
    token = (await reserve(stage.limiter, stage)).token()
    with stage.bill():
        lease = await from_token(stage.limiter, token)
    await lease.commit()


async def _consume(stage: Stage) -> None:
    await stage.take()
    lease = await reserve(stage.limiter, stage)
    with stage.bill():
        await lease.consume(rpm=1)
    await lease.commit()


async def _repeat_of_an_open_lease(stage: Stage) -> None:
    await stage.take()
    first = await reserve(stage.limiter, stage, "k")
    with stage.bill():
        repeat = await reserve(stage.limiter, stage, "k")
    await first.commit()
    await repeat.commit()


async def _repeat_of_a_committed_lease(stage: Stage) -> None:
    await stage.take()
    await (await reserve(stage.limiter, stage, "k")).commit()
    with stage.bill():
        repeat = await reserve(stage.limiter, stage, "k")
    await repeat.commit()


async def _refusal(stage: Stage) -> None:
    await stage.take(amount=99_999)
    with stage.bill(), suppress(RateLimitExceeded):
        await stage.limiter.reserve("key", "gpt-4", stage.amounts(2), idempotency_key="k")


@pytest.mark.parametrize(
    ("story", "cost"),
    [
        pytest.param(_charge, Cost(2, 4, 1), id="charge"),
        pytest.param(_charge_two_levels, Cost(2, 6, 2), id="charge of two levels"),
        pytest.param(_charge_unseen, Cost(3, 4, 2), id="charge of an unseen bucket"),
        pytest.param(_commit, Cost(1, 1, 0), id="commit"),
        pytest.param(_commit_a_correction, Cost(2, 2, 0), id="commit of another amount"),
        pytest.param(_release, Cost(2, 2, 0), id="release"),
        pytest.param(_take_up, Cost(1, 0, 1), id="from_token"),
        pytest.param(_consume, Cost(2, 4, 1), id="consume"),
        pytest.param(_repeat_of_an_open_lease, Cost(2, 1, 0, 1), id="repeat, open"),
        pytest.param(_repeat_of_a_committed_lease, Cost(1, 0, 0, 1), id="repeat, committed"),
        pytest.param(_refusal, Cost(2, 0, 2), id="refusal of a key"),
    ],
)
async def test_a_receipt_costs_what_its_decision_record_says(
    stage: Stage, story: Story, cost: Cost
) -> None:
    await story(stage)
    assert stage.cost.calls == cost.calls
    if IS_EXACT:
        assert stage.cost == cost


async def test_a_receipt_of_two_limits_and_two_levels_fits_into_one_unit(
    stage: Stage, table: OwnTable
) -> None:
    await stage.chain(2)
    lease = await reserve(stage.limiter, stage, "k" * 36)
    (item,) = [each for each in table.items() if "/RECEIPT#" in each["PK"]["S"]]
    assert item_bytes(item) <= 1024
    assert "ttl" in item
    await lease.commit()
