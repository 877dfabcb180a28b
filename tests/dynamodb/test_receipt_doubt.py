"""Answers about receipts are lost, late or never sent: each charge and each end is made once."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.support.drivers import Driver, limiter_on, open_repository
from tests.support.receipts import from_token
from tests.support.servers.chaos import (
    INTERNAL_ERROR,
    THROTTLED,
    Act,
    Answer,
    ChaosProxy,
    DeliverLate,
    DropAnswer,
    Pass,
    Request,
    Reset,
    Truncate,
    service_error,
)
from tests.support.servers.tables import OwnTable
from zae_limiter import (
    Lease,
    LeaseExpiredError,
    Limit,
    OnUnavailable,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Repository,
)
from zae_limiter.backends.dynamodb.url import dynamodb_url

LIMIT = Limit.per_day("rpm", 1000)
CONFLICT = service_error(400, "TransactionConflictException")
FAULTS: dict[str, Sequence[Act]] = {
    "answer lost": (DropAnswer(),),
    "answer lost thrice": (DropAnswer(), DropAnswer(), DropAnswer()),
    "answer and questions lost": (DropAnswer(), Reset(), DropAnswer(), Reset()),
    "answer cut": (Truncate(), Truncate(), Truncate()),
    "never carried out": (Reset(), Reset(), Reset(), Reset()),
    "the server fails": (INTERNAL_ERROR,) * 4,
    "the server is busy": (THROTTLED, CONFLICT, CONFLICT),
}


@pytest.fixture(params=["asyncio", pytest.param("blocking", marks=pytest.mark.slow)])
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture
async def limiter(facade: Driver, proxy: ChaosProxy, table: OwnTable) -> AsyncIterator[RateLimiter]:
    """A limiter with 900 tokens at its key and at the organisation above it."""
    url = dynamodb_url(table.name, table.server.region, proxy.url)
    async with await open_repository(facade, url=url, breaker_failures=0) as repository:
        await repository.set_system_defaults([LIMIT])
        await repository.create_entity("org")
        await repository.create_entity("key", parent_id="org", cascade=True)
        made = limiter_on(repository)
        async with made.acquire("key", "gpt-4", {"rpm": 100}):
            pass
        yield made


async def left(repository: Repository) -> int:
    """Return the tokens of both levels, which are the same."""
    found = [await repository.get_buckets(each, "gpt-4") for each in ("key", "org")]
    levels = {
        sum(state.tokens_milli for state in states if state.limit_name == "rpm") // 1000
        for states in found
    }
    (tokens,) = levels
    return tokens


async def reserve(limiter: RateLimiter, amount: int = 10) -> Lease:
    return await limiter.reserve("key", "gpt-4", {"rpm": amount}, idempotency_key="k", lease_ttl=60)


@pytest.mark.parametrize("faults", FAULTS)
async def test_a_charge_with_a_receipt_is_made_once(
    limiter: RateLimiter, proxy: ChaosProxy, faults: str
) -> None:
    proxy.use(FAULTS[faults])
    lease = await reserve(limiter)
    proxy.use(())
    assert lease.is_repeat is False
    assert await left(limiter.repository) == 890
    await lease.release()
    assert await left(limiter.repository) == 900


@pytest.mark.parametrize("faults", FAULTS)
async def test_a_repeat_joins_once_and_the_charge_can_be_given_back(
    limiter: RateLimiter, proxy: ChaosProxy, faults: str
) -> None:
    first = await reserve(limiter)
    proxy.use((Pass(), *FAULTS[faults]))
    repeat = await reserve(limiter)
    proxy.use(())
    assert repeat.is_repeat is True
    await first.release()
    assert await left(limiter.repository) == 890
    await repeat.release()
    assert await left(limiter.repository) == 900


@pytest.mark.parametrize("faults", FAULTS)
async def test_a_commit_is_made_once(limiter: RateLimiter, proxy: ChaosProxy, faults: str) -> None:
    lease = await reserve(limiter)
    token = lease.token()
    proxy.use(FAULTS[faults])
    await lease.commit(rpm=25)
    proxy.use(())
    assert await left(limiter.repository) == 875
    with pytest.raises(LeaseExpiredError):
        await from_token(limiter, token)


@pytest.mark.parametrize("faults", FAULTS)
async def test_a_release_is_made_once(limiter: RateLimiter, proxy: ChaosProxy, faults: str) -> None:
    lease = await reserve(limiter)
    proxy.use(FAULTS[faults])
    await lease.release()
    proxy.use(())
    assert await left(limiter.repository) == 900


@pytest.mark.parametrize("faults", FAULTS)
async def test_a_further_charge_on_a_receipt_is_made_once(
    limiter: RateLimiter, proxy: ChaosProxy, faults: str
) -> None:
    lease = await reserve(limiter)
    proxy.use(FAULTS[faults])
    await lease.consume(rpm=7)
    proxy.use(())
    assert await left(limiter.repository) == 883
    await lease.release()
    assert await left(limiter.repository) == 900


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
async def test_a_transaction_that_arrives_late_charges_nothing_more(
    limiter: RateLimiter, proxy: ChaosProxy
) -> None:
    late = [DeliverLate() for _ in range(3)]
    acts = iter(late)

    def hold_transactions(request: Request) -> Act:
        return next(acts, Pass()) if request.operation == "TransactWriteItems" else Pass()

    proxy.use_for(hold_transactions)
    lease = await reserve(limiter)
    assert lease.is_repeat is False
    for act in late:
        act.deliver()
    proxy.use(())
    assert await left(limiter.repository) == 890
    await lease.release()
    assert await left(limiter.repository) == 900


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
async def test_a_charge_that_stays_in_doubt_is_logged_and_found_by_its_key(
    limiter: RateLimiter, proxy: ChaosProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.use(itertools.chain([DropAnswer()], itertools.repeat(Reset())))
    with caplog.at_level(logging.WARNING, "zae_limiter"), pytest.raises(RateLimiterUnavailable):
        await reserve(limiter)
    proxy.use(())
    logged = [text for text in caplog.messages if "unknown outcome" in text]
    assert len(logged) == 2
    assert all("+10 rpm" in text for text in logged)
    repeat = await reserve(limiter)
    assert repeat.is_repeat is True
    assert await left(limiter.repository) == 890
    await repeat.commit(rpm=4)
    assert await left(limiter.repository) == 896


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
@pytest.mark.parametrize("end", ["commit", "release"])
async def test_an_end_that_failed_can_be_tried_again(
    limiter: RateLimiter, proxy: ChaosProxy, end: str
) -> None:
    lease = await reserve(limiter)
    for fault in (Reset(), DropAnswer()):
        proxy.use(itertools.repeat(fault))
        with pytest.raises(RateLimiterUnavailable):
            await getattr(lease, end)()
    proxy.use(())
    await getattr(lease, end)()
    assert await left(limiter.repository) == (890 if end == "commit" else 900)
    with pytest.raises(LeaseExpiredError):
        await getattr(lease, end)()


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
async def test_an_outage_that_is_let_through_charges_nothing_and_gives_no_token(
    limiter: RateLimiter, proxy: ChaosProxy
) -> None:
    proxy.use(itertools.repeat(Reset()))
    lease = await limiter.reserve(
        "key",
        "gpt-4",
        {"rpm": 10},
        on_unavailable=OnUnavailable.ALLOW,
        idempotency_key="k",
    )
    assert lease.degraded
    assert lease.is_repeat is False
    await lease.commit(rpm=3)
    proxy.use(())
    assert await left(limiter.repository) == 900


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
async def test_a_block_that_fails_in_an_outage_raises_its_own_error_and_stays_charged(
    limiter: RateLimiter, proxy: ChaosProxy, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        async with limiter.acquire("key", "gpt-4", {"rpm": 10}, idempotency_key="k"):
            proxy.use(itertools.repeat(Reset()))
            raise ZeroDivisionError

    with caplog.at_level(logging.WARNING, "zae_limiter"), pytest.raises(ZeroDivisionError):
        await fail()
    proxy.use(())
    assert await left(limiter.repository) == 890
    assert any("end of a lease failed" in text for text in caplog.messages)


def canceled(reasons: object) -> Act:
    """A transaction that was canceled, as a server may tell it."""
    kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
    body = {"__type": kind, "Message": "by plan", "CancellationReasons": reasons}
    return Answer(400, json.dumps(body).encode())


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
@pytest.mark.parametrize(
    "reasons",
    [
        [],
        None,
        [{"Code": "None"}] * 3,
        [{"Code": "ItemCollectionSizeLimitExceeded"}, {"Code": "None"}, {"Code": "None"}],
        [{"Code": "SomethingNew"}],
        [{"Code": "ConditionalCheckFailed"}],
    ],
    ids=str,
)
async def test_a_canceled_transaction_is_never_taken_for_a_charge(
    limiter: RateLimiter, proxy: ChaosProxy, reasons: object
) -> None:
    def cancel_transactions(request: Request) -> Act:
        is_transaction = request.operation == "TransactWriteItems"
        return canceled(reasons) if is_transaction else Pass()

    proxy.use_for(cancel_transactions)
    with pytest.raises(RateLimiterUnavailable):
        await reserve(limiter)
    proxy.use(())
    assert await left(limiter.repository) == 900
    lease = await reserve(limiter)
    assert lease.is_repeat is False
    await lease.release()


@pytest.mark.parametrize("facade", ["asyncio"], indirect=True)
async def test_a_refusal_whose_receipt_cannot_be_read_is_no_refusal(
    limiter: RateLimiter, proxy: ChaosProxy
) -> None:
    """Had the key been charged for, the refusal would be wrong."""
    with pytest.raises(RateLimitExceeded):
        await reserve(limiter, 901)

    def lose_reads_of_receipts(request: Request) -> Act:
        return Reset() if b"/RECEIPT#" in request.body else Pass()

    proxy.use_for(lose_reads_of_receipts)
    with pytest.raises(RateLimiterUnavailable):
        await reserve(limiter, 901)
    proxy.use(())
