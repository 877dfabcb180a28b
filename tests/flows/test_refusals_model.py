"""Known to be short means: a look at the store at that moment would say the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.crowd import Crowd, crowd, take
from tests.support.drivers import Driver
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.core.bucket import BucketAddress, at, full_bucket
from zae_limiter.core.judge import judge
from zae_limiter.core.limit import LimitSet
from zae_limiter.testing.clock import START_MS

STORED = (Limit("rpm", 8, 5, 1), Limit("tpm", 12, 2, 3))
WIDER = (Limit("rpm", 20, 50, 1), Limit("tpm", 12, 2, 3))
PARENT = (Limit("rpm", 15, 4, 1),)


KINDS = (
    *("take", "take", "take", "tokens", "override", "fail", "release", "charge"),
    *("wait", "wait", "other", "widen", "narrow", "delete", "back"),
)


@dataclass(frozen=True)
class Step:
    """One thing that happens; `amount` means what the kind makes of it."""

    kind: str
    amount: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(KINDS),
        st.integers(0, 14),
    ),
    max_size=40,
)


@dataclass
class Play:
    """A tape on its way. Whoever else takes makes waits longer than they are told to be."""

    it: Crowd
    limits: tuple[Limit, ...] = STORED
    is_alone: bool = True

    async def do(self, step: Step) -> None:
        it, amount = self.it, step.amount
        match step.kind:
            case "take":
                await self.check({"rpm": amount})
            case "tokens":
                await self.check({"rpm": amount // 4, "tpm": amount})
            case "override":
                await self.check({"rpm": amount}, WIDER)
            case "fail" | "release" | "charge":
                await self._acquire_and(step)
            case "wait":
                it.clock.advance(amount * amount / 60)
            case "back":
                it.clock.advance(-amount / 50)
                self.is_alone = False
            case "other":
                self.is_alone = False
                await take(it.other(), "child", rpm=amount // 3)
            case "widen" | "narrow":
                self.limits = WIDER if step.kind == "widen" else STORED
                await it.limiter.set_limits("child", list(self.limits))
            case "delete":
                self.limits = STORED
                await it.limiter.delete_entity("child")
                await it.limiter.create_entity("child", parent_id="org", cascade=True)
            case _:
                raise AssertionError(step)

    async def check(self, asked: dict[str, int], override: Sequence[Limit] = ()) -> None:
        """Ask, and compare with what the store had at that moment."""
        expected_s = max(
            [
                await self._wait_s("child", asked, override or self.limits),
                await self._wait_s("org", asked, override or PARENT),
            ]
        )
        wait_s = 0.0
        try:
            async with self.it.limiter.acquire(
                "child", "gpt-4", asked, list(override) if override else None
            ):
                pass
        except RateLimitExceeded as refused:
            wait_s = refused.retry_after_seconds
        assert (wait_s > 0) == (expected_s > 0), f"{asked}: {wait_s} s, not {expected_s} s"
        if self.is_alone:
            assert wait_s == expected_s

    async def _wait_s(
        self, entity_id: str, asked: dict[str, int], limits: Sequence[Limit]
    ) -> float:
        home = BucketAddress(self.it.scope.namespace_id, entity_id, "gpt-4")
        stored = (await self.it.origin.scope.store.buckets.read([home])).get(home)
        limit_set, now_ms = LimitSet.of(limits), self.it.clock.now_ms()
        bucket = full_bucket(limit_set, now_ms) if stored is None else stored
        takes_milli = {n: amount * 1000 for n, amount in asked.items() if n in limit_set.by_name}
        return judge(at(bucket, limit_set, now_ms), takes_milli).wait_ms / 1000

    async def _acquire_and(self, step: Step) -> None:
        try:
            async with self.it.limiter.acquire("child", "gpt-4", {"rpm": step.amount}) as lease:
                if step.kind == "fail":
                    raise LookupError
                delta = -step.amount // 2 if step.kind == "release" else step.amount
                correction = lease.adjust(rpm=delta)
                if asyncio.iscoroutine(correction):
                    await correction
        except (RateLimitExceeded, LookupError):
            return


async def play(driver: Driver, tape: list[Step], ttl: float) -> int:
    async with crowd(driver, "memory://", STORED, refusal_cache_ttl=ttl) as it:
        it.clock.set(START_MS + 3_600_000)
        await it.limiter.create_entity("org")
        await it.limiter.set_limits("org", list(PARENT))
        await it.limiter.create_entity("child", parent_id="org", cascade=True)
        playing = Play(it)
        for step in tape:
            await playing.do(step)
        return it.repository.get_cache_stats().local_rejections


@given(st.sampled_from(["asyncio", "blocking"]), steps, st.sampled_from([1.0, 60.0]))
@example("asyncio", [Step("take", 8), Step("take", 5), Step("delete", 0), Step("take", 5)], 1.0)
@settings(max_examples=150, deadline=None)
def test_the_refusal_cache_refuses_no_request_that_the_store_would_admit(
    driver: Driver, tape: list[Step], ttl: float
) -> None:
    asyncio.run(play(driver, tape, ttl))


def test_tapes_of_the_refusal_cache_do_refuse_without_a_call() -> None:
    tape = [Step("take", 8), *[Step("take", 5)] * 3, Step("wait", 5), Step("take", 6)]
    assert asyncio.run(play("blocking", tape, 1.0)) >= 2
