"""A world of jobs with idempotency keys, and of leases that change hands.

Few keys are drawn by many jobs, of processes that die and of others that go on with their keys.
Tokens lie in a place that every process sees, and more than one process takes up the same token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

from zae_limiter import (
    IdempotencyKeyError,
    LeaseExpiredError,
    RateLimiterUnavailable,
    RateLimitExceeded,
)
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.limit import MILLI
from zae_limiter.core.receipts import (
    Receipt,
    ReceiptState,
    ReceiptSwap,
    ReceiptTerms,
    StaleReceipt,
    ledger_entries,
)
from zae_limiter.core.writes import Outcome
from zae_limiter.flows.acquire.lease import (
    adjust,
    commit,
    consume,
    end_lease,
    give_back,
    open_lease,
    resume_lease,
)
from zae_limiter.flows.acquire.lease_record import LeaseRecord, LeaseTerms, token
from zae_limiter.flows.acquire.request import make_request
from zae_limiter.flows.scope import Scope
from zae_limiter.ports.repository_protocol import Receipts, RepositoryProtocol
from zae_limiter.runtime.simulated import Client
from zae_limiter.runtime.simulated_scheduler import Cancelled

from .properties import (
    check_items,
    check_partition,
    check_refusals,
    check_usage,
    check_window,
    deltas_milli,
)
from .scenario import NAMES, RESOURCE
from .truth import Addressed, Swapped
from .watch import Amounts, Ending, Story, WatchedBuckets, WatchedConfigs, add
from .world import NAMESPACE, BodyFailed, World

_KEYS = ("a", "b", "c")
_RECEIPTS = BucketAddress(NAMESPACE, "receipts", "receipts")


@dataclass
class End:
    """An end of a lease, as the lease object that tried it saw it.

    `totals`: what was committed. `added`: the tokens by which it was corrected otherwise.
    `is_sure`: whether the caller was told that it is done.
    """

    lease_id: str
    ender: str
    totals: Amounts | None
    added: int = 0
    is_sure: bool = False


@dataclass
class Claims:
    """Everything that the clients say they did."""

    ends: list[End] = field(default_factory=list)
    plain: list[tuple[Story, LeaseRecord]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    owners: dict[str, Story] = field(default_factory=dict)


class _OwnedReceipts:
    """The receipts of one client's store: notes for which story each lease is charged."""

    def __init__(self, receipts: Receipts, world: ReceiptWorld) -> None:
        self.read = receipts.read
        self._swap = receipts.swap
        self._world = world

    async def swap(
        self, swap: ReceiptSwap, writes: Sequence[Addressed] = ()
    ) -> list[Outcome] | StaleReceipt:
        story = self._world.watch.current().story
        if writes:
            self._world.claims.owners.setdefault(swap.after.lease_id, story)
        try:
            return await self._swap(swap, writes)
        except StorageUnavailable:
            story.troubled.add(_RECEIPTS)
            raise


class ReceiptWorld(World):
    """A world whose jobs ask for receipts."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scenario = replace(
            self.scenario, changes=0, overrides=False, expiries=0, clock_steps=0, jobs=4
        )
        self.claims = Claims()
        self.tokens: list[str] = []

    def _watched_scope(self, client: Client) -> Scope:
        roles = {
            "buckets": WatchedBuckets(client.store.buckets, self.watch),
            "configs": WatchedConfigs(client.store.configs, self.watch),
            "receipts": _OwnedReceipts(client.store.receipts, self),
        }
        return self._scope(client.io, cast(RepositoryProtocol, SimpleNamespace(**roles)))

    async def _job(self, client: Client, scope: Scope) -> None:
        if self.tokens and self.rng.random() < 0.4:
            await self._end_token(client, scope, self.rng.choice(self.tokens))
            return
        await super()._job(client, scope)

    async def _acquire(self, scope: Scope, story: Story) -> None:
        terms = self._terms()
        amounts = {"requests": 1, "tokens": 1} if terms and terms[0] else story.consume
        story.consume = dict(amounts)
        request = make_request(
            story.entity_id, RESOURCE, amounts, speculative=self.scenario.speculative
        )._replace(receipt=terms)
        try:
            record = await open_lease(scope, request, LeaseTerms(story.timeout))
        except IdempotencyKeyError:
            self.claims.seen["another request"] += 1
            raise BodyFailed from None
        story.lease, story.decided_ms = record, self.simulation.now_ms
        if record.held is None:
            self.claims.plain.append((story, record))
            await self._run_plain(scope, story, record)
            return
        self.claims.seen["repeat" if record.held.is_repeat else "charged"] += 1
        await self._run_held(scope, story, record)

    def _terms(self) -> ReceiptTerms | None:
        """Draw none, a key, a lease for another process, or both."""
        roll = self.rng.random()
        if roll < 0.15:
            return None
        ends_ms = self.rng.choice((50, 1000, 60_000))
        if roll < 0.4:
            return ReceiptTerms(None, ends_ms, ends_ms)
        expires_ms = max(ends_ms, self.rng.choice((300, 3000, 60_000)))
        return ReceiptTerms(self.rng.choice(_KEYS), expires_ms, ends_ms)

    async def _run_plain(self, scope: Scope, story: Story, record: LeaseRecord) -> None:
        failed = self.rng.random() < 0.2
        try:
            await scope.io.sleep(self._some_ms(500) / 1000)
        except Cancelled:
            await end_lease(record, failed=True)
            raise
        await end_lease(record, failed=failed)
        if failed:
            raise BodyFailed

    async def _run_held(self, scope: Scope, story: Story, record: LeaseRecord) -> None:
        try:
            await scope.io.sleep(self._some_ms(800) / 1000)
            if self.rng.random() < 0.3:
                await self._consume(record)
            if self.rng.random() < 0.5:
                self.tokens.append(token(record))
                self.claims.seen["handed over"] += 1
            elif self.rng.random() < 0.5:
                await self._end(record)
            else:
                await self._end_block(record)
        except LeaseExpiredError:
            self.claims.seen["expired"] += 1

    async def _consume(self, record: LeaseRecord) -> None:
        try:
            await consume(record, {self.rng.choice(NAMES): 1})
            self.claims.seen["consumed more"] += 1
        except (RateLimitExceeded, RateLimiterUnavailable):
            self.claims.seen["not consumed"] += 1

    async def _end_token(self, client: Client, scope: Scope, text: str) -> None:
        story = Story(client, "alone", {}, None, None, self.simulation.now_ms)
        self.watch.calls(story, {})
        try:
            record = await resume_lease(scope, text, LeaseTerms(), None)
            self.claims.seen["taken up"] += 1
            await scope.io.sleep(self._some_ms(300) / 1000)
            await self._end(record)
        except LeaseExpiredError:
            self.claims.seen["expired"] += 1
        except RateLimiterUnavailable:
            self.claims.seen["unreachable"] += 1

    async def _end(self, record: LeaseRecord) -> None:
        """Commit or release, twice if the store could not answer."""
        held = record.held
        assert held is not None
        totals = {"tokens": self.rng.randint(0, 3)} if self.rng.random() < 0.6 else None
        end = End(held.receipt.lease_id, held.ender, totals)
        self.claims.ends.append(end)
        story = self.watch.current().story
        faults = story.faults
        for is_last in (False, True):
            try:
                await (give_back(record) if totals is None else commit(record, totals))
                # A refund that could not be written is logged, and raises nothing.
                end.is_sure = story.faults == faults
                return
            except RateLimiterUnavailable:
                if is_last or record.state.name != "ACTIVE":
                    raise

    async def _end_block(self, record: LeaseRecord) -> None:
        """End a block that succeeds, with a correction or none, or one that fails."""
        held = record.held
        assert held is not None
        failed = self.rng.random() < 0.3
        delta = 0 if self.rng.random() < 0.5 else 1
        if delta:
            adjust(record, {"tokens": delta})
        end = End(held.receipt.lease_id, held.ender, None, 0 if failed else delta)
        self.claims.ends.append(end)
        await end_lease(record, failed=failed)
        # A block that fails is not told whether its refund was written.
        end.is_sure = not failed


def check_receipts(world: ReceiptWorld) -> None:
    """Raise `AssertionError` for the first promise that was broken."""
    for home, history in world.truth.histories().items():
        check_items(history)
        check_partition(history)
        check_window(home, history)
        check_usage(world, home, history)
    check_refusals(world)
    _check_swaps(world)
    _check_owners(world)
    _check_totals(world)


def _check_swaps(world: ReceiptWorld) -> None:
    """Each receipt follows from the one before it; a key is charged once, a lease ended once."""
    stored: dict[str, Receipt] = {}
    ended: set[str] = set()
    for swapped in world.truth.swapped:
        before, after = swapped.swap
        assert before == stored.get(after.key.name), f"not what was stored: {swapped}"
        stored[after.key.name] = after
        if swapped.writes:
            _check_charge(world, swapped)
        if after.lease_id and after.state is not ReceiptState.OPEN and after.ended_by:
            is_new = before is None or before.ended_by != after.ended_by
            assert not is_new or after.lease_id not in ended, f"ended twice: {swapped}"
            ended.add(after.lease_id)
            late_ms = swapped.at_ms - after.ends_by_ms
            assert not is_new or late_ms <= _lag_ms(world), f"ended late: {swapped}"


def _check_owners(world: ReceiptWorld) -> None:
    """A call holds one charge, and a call that was refused or failed holds none, unless the store
    left it in doubt."""
    last = {s.swap.after.lease_id: s.swap.after for s in world.truth.swapped}
    kept: Counter[Story] = Counter()
    for lease_id, story in world.claims.owners.items():
        receipt = last.get(lease_id)
        if receipt is None or not receipt.entries or receipt.state is ReceiptState.RETURNED:
            continue
        kept[story] += 1
        assert kept[story] == 1, f"charged twice: {story}, {receipt}"
        assert story.ending is not Ending.REFUSED, f"charged though refused: {story}, {receipt}"
        if story.lease is None and not story.troubled:
            assert story.ending is Ending.NONE, f"charged without a lease: {story}, {receipt}"


def _check_charge(world: ReceiptWorld, swapped: Swapped) -> None:
    """A receipt tells what was charged with it, and a key in force is not charged again."""
    before, after = swapped.swap
    moved: dict[tuple[str, int], Amounts] = {}
    for address, write in swapped.writes:
        add(moved.setdefault((address.entity_id, address.shard), {}), deltas_milli(write))
    told: dict[tuple[str, int], Amounts] = {}
    is_more = before is not None and before.lease_id == after.lease_id and before.entries != ()
    for sign, receipt in ((1, after), (-1, before if is_more else None)):
        for entry in receipt.entries if receipt is not None else ():
            place = entry.address.entity_id, entry.address.shard
            signed = {name: sign * amount for name, amount in entry.charged_milli.items()}
            add(told.setdefault(place, {}), signed)
    assert _tidied(told) == _tidied(moved), f"the receipt does not tell what was charged: {swapped}"
    if before is None:
        return
    if is_more:
        assert before.state is ReceiptState.OPEN, f"charged on an ended lease: {swapped}"
    else:
        is_early = before.is_in_force(swapped.at_ms + _lag_ms(world))
        assert not is_early, f"charged twice: {swapped}"


def _lag_ms(world: ReceiptWorld) -> int:
    """How much earlier than the store's clock a client may have judged: skew, and its way there."""
    return 2 * world.scenario.skew_ms + 2 * world.scenario.faults.max_delay_ms + 1000


def _tidied(amounts: dict[tuple[str, int], Amounts]) -> dict[tuple[str, int], Amounts]:
    found = {place: {n: a for n, a in each.items() if a} for place, each in amounts.items()}
    return {place: each for place, each in found.items() if each}


def _check_totals(world: ReceiptWorld) -> None:
    """What each bucket has given in the end is what its leases kept."""
    leases: dict[str, Receipt] = {}
    for swapped in world.truth.swapped:
        after = swapped.swap.after
        if after.entries:
            leases[after.lease_id] = after
    least: dict[str, Amounts] = {}
    most: dict[str, Amounts] = {}
    for lease_id, receipt in leases.items():
        _count(world, lease_id, receipt, least, most)
    for story, record in world.claims.plain:
        _count_plain(story, record, least, most)
    unsure = _unsure_plain(world)
    for home, history in world.truth.histories().items():
        for name in NAMES:
            net = sum(deltas_milli(applied.write).get(name, 0) for applied in history)
            low = least.get(home.entity_id, {}).get(name, 0)
            high = most.get(home.entity_id, {}).get(name, 0) + unsure.get(name, 0)
            problem = f"{net} {name} at {home.entity_id}, not {low} to {high}"
            assert low <= net <= high, problem


def _count(
    world: ReceiptWorld,
    lease_id: str,
    receipt: Receipt,
    least: dict[str, Amounts],
    most: dict[str, Amounts],
) -> None:
    """Add what one lease keeps: its charge, or what the lease object that ended it committed."""
    winner = next((e for e in world.claims.ends if e.ender == receipt.ended_by), None)
    buckets: dict[str, Amounts] = {}
    names: dict[str, set[str]] = {}
    for entry in ledger_entries(receipt):
        entity_id = entry.address.entity_id
        add(buckets.setdefault(entity_id, {}), entry.charged_milli)
        names.setdefault(entity_id, set()).update(entry.limit_names | entry.later_names)
    for entity_id, charged in buckets.items():
        final = dict(charged)
        if receipt.state is ReceiptState.RETURNED:
            final = {}
        elif receipt.state is ReceiptState.SETTLED and winner is not None:
            said = winner.totals or {"tokens": charged.get("tokens", 0) // MILLI + winner.added}
            final |= {name: t * MILLI for name, t in said.items() if name in names[entity_id]}
        is_sure = winner is not None and winner.is_sure
        open_ = receipt.state is ReceiptState.OPEN
        for name in {*final, *charged}:
            kept, was = final.get(name, 0), charged.get(name, 0)
            low, high = (kept, kept) if is_sure or open_ else (min(kept, was), max(kept, was))
            add(least.setdefault(entity_id, {}), {name: low})
            add(most.setdefault(entity_id, {}), {name: high})


def _count_plain(
    story: Story, record: LeaseRecord, least: dict[str, Amounts], most: dict[str, Amounts]
) -> None:
    kept = story.ending is Ending.SETTLED
    troubled = bool(story.faults) or story.ending is Ending.NONE
    for entry in record.ledger.entries:
        entity_id = entry.address.entity_id
        if kept and not troubled:
            add(least.setdefault(entity_id, {}), entry.charged_milli)
        if kept or troubled:
            add(most.setdefault(entity_id, {}), entry.charged_milli)


def _unsure_plain(world: ReceiptWorld) -> Amounts:
    """What may stay charged of calls without a receipt that never got a lease, and of further
    charges and refunds whose answers were lost."""
    total: Amounts = {}
    for story in world.watch.stories:
        if story.faults or story.ending is Ending.NONE:
            add(total, {name: 4 * amount * MILLI for name, amount in story.consume.items()})
            add(total, dict.fromkeys(NAMES, 4 * MILLI))
    return total
