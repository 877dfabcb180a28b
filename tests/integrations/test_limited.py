"""The decorator that charges each call of a function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.integrations import limited


@pytest.fixture
async def limiter() -> AsyncIterator[RateLimiter]:
    async with RateLimiter(repository=await Repository.open(url="memory://")) as opened:
        yield opened


@pytest.fixture
def blocking() -> Iterator[SyncRateLimiter]:
    with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as opened:
        yield opened


async def test_each_call_of_an_async_function_is_charged(limiter: RateLimiter) -> None:
    @limited(limiter, "mail", key="newsletter", limits="2/minute")
    async def send(text: str) -> str:
        """Send a mail."""
        await asyncio.sleep(0)
        return text.upper()

    assert (send.__name__, send.__doc__) == ("send", "Send a mail.")
    assert [await send("a"), await send("b")] == ["A", "B"]
    with pytest.raises(RateLimitExceeded):
        await send("c")


def test_key_and_cost_of_a_function_may_depend_on_its_arguments(blocking: SyncRateLimiter) -> None:
    blocking.set_system_defaults([Limit.per_day("tokens", 100)])

    @limited(
        blocking,
        "complete",
        key=lambda user, *, tokens: user,
        cost=lambda user, *, tokens: {"tokens": tokens},
    )
    def complete(user: str, *, tokens: int) -> int:
        return tokens

    assert complete("ann", tokens=70) == 70
    assert complete("bob", tokens=70) == 70
    assert blocking.available("ann", "complete") == {"tokens": 30}
    with pytest.raises(RateLimitExceeded):
        complete("ann", tokens=40)


@pytest.mark.parametrize(("on_error", "left"), [("refund", 5), ("keep", 4)])
def test_a_function_that_fails_is_charged_only_if_that_is_wanted(
    blocking: SyncRateLimiter, on_error: str, left: int
) -> None:
    limits = [Limit.per_day("requests", 5)]

    @limited(blocking, "mail", key="k", limits=limits, on_error=on_error)  # type: ignore[arg-type]
    def fail() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert blocking.available("k", "mail", limits) == {"requests": left}


def test_a_function_waits_for_tokens_if_it_may(blocking: SyncRateLimiter) -> None:
    @limited(blocking, "mail", key="k", limits="50/second; burst 1", timeout=30)
    def send() -> int:
        return 1

    assert sum(send() for _ in range(3)) == 3


async def test_functions_that_the_limiter_cannot_charge_are_refused(
    limiter: RateLimiter, blocking: SyncRateLimiter
) -> None:
    async def later() -> None: ...

    def now() -> None: ...

    def stream() -> Iterator[int]:
        yield 1

    async def later_stream() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(ValidationError, match="needs a RateLimiter, not a SyncRateLimiter"):
        limited(blocking, "mail", key="k")(later)
    with pytest.raises(ValidationError, match="needs a SyncRateLimiter, not a RateLimiter"):
        limited(limiter, "mail", key="k")(now)
    with pytest.raises(ValidationError, match=r"is a generator: use limiter\.reserve"):
        limited(blocking, "mail", key="k")(stream)
    with pytest.raises(ValidationError, match=r"is a generator: use limiter\.reserve"):
        limited(limiter, "mail", key="k")(later_stream)


async def test_an_object_that_is_called_asynchronously_is_charged_until_it_ends() -> None:
    class Sender:
        async def __call__(self, key: str) -> str:
            await asyncio.sleep(0)
            raise LookupError(key)

    async with RateLimiter(repository=await Repository.open(url="memory://")) as limiter:
        rule = {"key": lambda key: key, "limits": "2/day"}
        send: Any = limited(limiter, "mail", **rule)(Sender())  # type: ignore[arg-type]
        for _ in range(3):
            with pytest.raises(LookupError):
                await send("ann")
    with SyncRateLimiter(repository=SyncRepository.open(url="memory://")) as blocking:
        with pytest.raises(ValidationError, match="needs a RateLimiter"):
            limited(blocking, "mail", key="ann")(Sender())
        with pytest.raises(ValidationError, match="needs a RateLimiter"):
            limited(blocking, "mail", key="ann")(partial(Sender(), "ann"))
