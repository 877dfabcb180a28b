"""Long random sequences of writes, each compared with `apply`. A seed gives the same again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from ...core.apply import apply
from ...core.bucket import Bucket, BucketAddress
from ...core.idempotency import fenced, operation_id
from ...core.limit import MILLI, Limit, LimitSet
from ...core.planner import (
    Crowded,
    Intent,
    Short,
    plan,
    plan_anew,
    plan_create,
    plan_first,
    plan_restamp,
    rates_charged,
)
from ...core.writes import Adjust, Granted, Write
from .trial import Trial, same

_STEPS = 150
# The part of steps before which the item is fenced.
_FENCES = 0.1
_LIMIT_SETS = (
    LimitSet.of([Limit.per_second("rps", 10), Limit.per_day("r-p.d", 97, burst=31)]),
    LimitSet.of([Limit.per_second("rps", 3, burst=12), Limit.per_minute("tpm", 7_777)]),
    LimitSet.of([Limit("tpm", 10**15, 10**15, 7), Limit.per_hour("r-p.d", 1)]),
)


async def check_random_writes_with_seed_1(trial: Trial) -> None:
    await _Walk(trial, 1).run()


async def check_random_writes_with_seed_2(trial: Trial) -> None:
    await _Walk(trial, 2).run()


async def check_random_writes_with_seed_3(trial: Trial) -> None:
    await _Walk(trial, 3).run()


class _Walk:
    """Clients with old images, clocks that disagree, writes that are sent again."""

    def __init__(self, trial: Trial, seed: int) -> None:
        self._trial = trial
        self._seed = seed
        self._random = random.Random(seed)
        self._now_ms = trial.now_ms
        self._model: dict[BucketAddress, Bucket] = {}
        self._images: dict[BucketAddress, list[Bucket]] = {}
        self._sent: dict[BucketAddress, list[Write]] = {}

    async def run(self) -> None:
        addresses = [self._trial.address(key, "gpt-4") for key in ("key-1", "key-2")]
        for step in range(_STEPS):
            self._now_ms += self._random.choice((0, 0, 0, 1, 40, 999, 60_000, -30))
            address = self._random.choice(addresses)
            write = self._next(address)
            if self._random.random() < _FENCES:
                await self._fence(
                    address, write.operation, f"seed {self._seed}, step {step}: fence"
                )
            await self._send(address, write, f"seed {self._seed}, step {step}: {write}")
        found = await self._trial.store.buckets.read(addresses)
        same(found, self._model, f"seed {self._seed}: the buckets at the end")

    async def _fence(self, address: BucketAddress, operation: str, what: str) -> None:
        known = self._model.get(address)
        wanted = None if known is None else fenced(known, operation)
        same(await self._trial.store.buckets.fence(address, operation), wanted, what)
        if wanted is not None:
            self._model[address] = wanted

    async def _send(self, address: BucketAddress, write: Write, what: str) -> None:
        wanted = apply(write, self._model.get(address))
        same(await self._trial.write(address, write), wanted, what)
        if isinstance(wanted, Granted):
            self._model[address] = wanted.bucket
            self._images.setdefault(address, []).append(wanted.bucket)
        self._sent.setdefault(address, []).append(write)

    def _next(self, address: BucketAddress) -> Write:
        makers: list[Callable[[BucketAddress], Write]] = [
            self._first,
            self._adjustment,
            self._plan,
            self._plan,
            self._restamp,
            self._repetition,
            self._second_copy,
        ]
        return self._random.choice(makers)(address)

    def _operation(self) -> str:
        """Return an id that tells the time of the walk."""
        return operation_id(self._now_ms, f"{self._random.getrandbits(40):x}")

    def _first(self, address: BucketAddress) -> Write:
        image = self._random.choice([None, *self._images.get(address, [])[-3:]])
        return plan_first(self._intent(), image, self._operation(), self._now_ms)

    def _adjustment(self, address: BucketAddress) -> Write:
        names = ("rps", "tpm", "r-p.d")
        deltas_milli = {
            name: self._random.choice((-1, 1)) * self._amount_milli()
            for name in self._random.sample(names, self._random.randint(0, 3))
        }
        acquires = self._random.choice((0, 0, -1))
        seen = self._random.choice((None, self._model.get(address)))
        operation, intent = self._operation(), self._intent()
        rates = rates_charged(deltas_milli, self._random.choice(((), (intent,))))
        write = Adjust(operation, self._now_ms, deltas_milli, acquires, seen, None, rates)
        return self._random.choice((write, plan_anew(write, intent)))

    def _plan(self, address: BucketAddress) -> Write:
        intent, operation = self._intent(), self._operation()
        images = self._images.get(address)
        planned = (
            plan(intent, self._random.choice(images[-3:]), operation, self._now_ms)
            if images
            else plan_create(intent, operation, self._now_ms)
        )
        if isinstance(planned, Short | Crowded):
            return self._adjustment(address)
        return planned

    def _restamp(self, address: BucketAddress) -> Write:
        images = self._images.get(address)
        if not images:
            return self._plan(address)
        operation = self._operation()
        return plan_restamp(
            self._intent(), self._random.choice(images[-3:]), operation, self._now_ms
        )

    def _repetition(self, address: BucketAddress) -> Write:
        sent = self._sent.get(address)
        return self._random.choice(sent[-6:]) if sent else self._first(address)

    def _second_copy(self, address: BucketAddress) -> Write:
        """Return a write that was sent already, as a copy that was planned later."""
        sent = self._repetition(address)
        return sent._replace(operation=self._operation())

    def _intent(self) -> Intent:
        limits = self._random.choices(_LIMIT_SETS, (6, 2, 1))[0]
        takes_milli: Mapping[str, int] = {
            limit.name: self._amount_milli() % (limit.capacity * MILLI + 2)
            for limit in limits.limits
            if self._random.random() < 0.7
        }
        ttl_seconds = self._random.choice((None, 10**6))
        parent_id = self._random.choice((None, "org-1"))
        return Intent(limits, takes_milli, 1, ttl_seconds, parent_id, parent_id is not None)

    def _amount_milli(self) -> int:
        return self._random.choice((0, 1, 999, MILLI, 7 * MILLI, 31 * MILLI, 10**18))
