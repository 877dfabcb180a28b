"""Keys and tokens against a model of a few lines: any sequence of calls adds up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.drivers import stranger
from zae_limiter import (
    LeaseExpiredError,
    Limit,
    RateLimitExceeded,
    Repository,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.testing import ManualClock

# Nothing comes back while a sequence runs.
LIMIT = Limit("tpm", 20, 1, 1_000_000_000)
LEASE_TTL_S, KEY_TTL_S = 10, 25


@dataclass(eq=False)
class Charge:
    """A charge of the model. `word`: what its end has made of it."""

    total: int
    began_s: int
    is_kept_for_key: bool
    holders: set[int] = field(default_factory=set)
    word: str = "open"

    def is_in_force(self, now_s: int) -> bool:
        return self.word != "returned" and now_s < self.began_s + KEY_TTL_S

    def is_endable(self, now_s: int) -> bool:
        return self.word == "open" and now_s < self.began_s + LEASE_TTL_S


@dataclass(eq=False)
class Handle:
    """A lease object, the charge that it is for, and the holder that it ends the charge for."""

    lease: SyncLease
    charge: Charge
    holder: int | None
    is_over: bool = False
    is_moot: bool = False


class KeysAndTokens(RuleBasedStateMachine):
    """Two processes use two keys, take up each other's tokens, and end leases in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        repository = SyncRepository.open(url="memory://", clock=self.clock)
        repository.set_system_defaults([LIMIT])
        other: Any = stranger(cast(Repository, repository))
        self.limiters = [SyncRateLimiter(repository), SyncRateLimiter(other)]
        self.charges: list[Charge] = []
        self.keys: dict[str, Charge] = {}
        self.handles: list[Handle] = []
        self.now_s = self.next_holder = 0

    def used(self) -> int:
        return sum(charge.total for charge in self.charges)

    @rule(process=st.integers(0, 1), key=st.sampled_from(["a", "b"]), amount=st.just(3))
    def reserve_with_a_key(self, process: int, key: str, amount: int) -> None:
        known = self.keys.get(key)
        is_repeat = known is not None and known.is_in_force(self.now_s)
        try:
            lease = self.limiters[process].reserve(
                "key",
                "gpt-4",
                {"tpm": amount},
                idempotency_key=key,
                idempotency_ttl=KEY_TTL_S,
                lease_ttl=LEASE_TTL_S,
            )
        except RateLimitExceeded:
            assert not is_repeat
            assert self.used() + amount > LIMIT.capacity
            return
        assert lease.is_repeat == is_repeat
        if is_repeat and known is not None:
            self._hold(lease, known)
        else:
            self.keys[key] = self._charge(lease, amount, is_kept_for_key=True)

    @rule(process=st.integers(0, 1), amount=st.integers(0, 6))
    def reserve_without_a_key(self, process: int, amount: int) -> None:
        try:
            lease = self.limiters[process].reserve(
                "key", "gpt-4", {"tpm": amount}, lease_ttl=LEASE_TTL_S
            )
        except RateLimitExceeded:
            assert self.used() + amount > LIMIT.capacity
            return
        self._charge(lease, amount, is_kept_for_key=False)

    def _charge(self, lease: SyncLease, amount: int, is_kept_for_key: bool) -> Charge:
        charge = Charge(amount, self.now_s, is_kept_for_key)
        self.charges.append(charge)
        self._hold(lease, charge)
        return charge

    def _hold(self, lease: SyncLease, charge: Charge) -> None:
        lease.is_reserved = False
        holder = None
        if charge.is_endable(self.now_s):
            holder = self.next_holder
            self.next_holder += 1
            charge.holders.add(holder)
        is_moot = holder is None and charge.word == "settled"
        self.handles.append(Handle(lease, charge, holder, is_moot=is_moot))

    @rule(process=st.integers(0, 1), number=st.integers(0, 30))
    def take_up_a_token(self, process: int, number: int) -> None:
        handle = self._pick(number)
        if handle is None or handle.is_over or handle.holder is None:
            return
        token = handle.lease.token()
        is_left = handle.holder in handle.charge.holders
        is_usable = self._is_in_time(handle.charge) and handle.charge.word != "returned"
        is_there = not self._is_replaced(handle.charge)
        try:
            lease = SyncLease.from_token(self.limiters[process], token)
        except LeaseExpiredError:
            assert not (is_left and is_usable and is_there)
            return
        assert is_left
        assert is_usable
        assert is_there
        lease.is_reserved = False
        self.handles.append(Handle(lease, handle.charge, handle.holder))

    @rule(number=st.integers(0, 30), actual=st.none() | st.integers(0, 9))
    def end_a_lease(self, number: int, actual: int | None) -> None:
        handle = self._pick(number)
        if handle is None:
            return
        charge, is_commit = handle.charge, actual is not None
        is_open = not handle.is_over and not self._is_replaced(charge)
        holds = handle.holder in charge.holders
        is_late = not handle.is_over and is_commit and charge.word == "settled"
        has_lost = holds and not self._is_replaced(charge) and self._is_in_time(charge)
        says_nothing = is_late and (handle.is_moot or has_lost)
        wins = is_open and holds and charge.is_endable(self.now_s)
        try:
            if actual is None:
                handle.lease.release()
            else:
                handle.lease.commit(tpm=actual)
        except LeaseExpiredError:
            assert not wins
            assert not says_nothing
            handle.is_over = True
            return
        handle.is_over = True
        assert wins or says_nothing
        if wins:
            self._end(charge, handle.holder, actual)

    def _end(self, charge: Charge, holder: int | None, actual: int | None) -> None:
        assert holder is not None
        charge.holders.discard(holder)
        if actual is not None:
            charge.word, charge.total = "settled", actual
        elif not charge.holders:
            charge.word, charge.total = "returned", 0

    @rule(number=st.integers(0, 30), amount=st.integers(1, 4))
    def consume_more(self, number: int, amount: int) -> None:
        handle = self._pick(number)
        if handle is None or handle.is_over:
            return
        charge = handle.charge
        is_usable = charge.is_endable(self.now_s) and handle.holder in charge.holders
        try:
            handle.lease.consume(tpm=amount)
        except RateLimitExceeded:
            assert self.used() + amount > LIMIT.capacity
            return
        except LeaseExpiredError:
            assert not is_usable or self._is_replaced(charge)
            handle.is_over = True
            return
        assert handle.is_moot or (is_usable and not self._is_replaced(charge))
        if not handle.is_moot:
            charge.total += amount

    @rule(seconds=st.sampled_from([1, 5, 11, 26, 200]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.now_s += seconds

    def _pick(self, number: int) -> Handle | None:
        return self.handles[number % len(self.handles)] if self.handles else None

    def _is_in_time(self, charge: Charge) -> bool:
        return self.now_s < charge.began_s + LEASE_TTL_S

    def _is_replaced(self, charge: Charge) -> bool:
        return charge.is_kept_for_key and charge not in self.keys.values()

    @invariant()
    def the_bucket_has_given_what_the_charges_hold(self) -> None:
        states = self.limiters[0].repository.get_buckets("key", "gpt-4")
        consumed_milli = sum(s.total_consumed_milli or 0 for s in states if s.limit_name == "tpm")
        assert consumed_milli == self.used() * 1000


TestKeysAndTokens = KeysAndTokens.TestCase
TestKeysAndTokens.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
