"""Taking from several items of a bucket what none of them has alone.

That is one transaction, all or none. Where it can, it only takes what is stored, which succeeds
whatever other clients write to the items meanwhile, as long as they leave enough. An item that
has to be refilled is another matter: the first client that refills it spoils the transaction of
every other. Where that goes on, and the bucket still has enough, the items are charged one after
the other, so that there is only one of them to race for at a time; what was taken is given back
if the rest cannot be had.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.bucket import Bucket, BucketAddress, at
from ...core.exceptions import StorageUnavailable
from ...core.judge import judge_shards
from ...core.ledger import Entry, Ledger
from ...core.marks import mark_ancestor
from ...core.planner import plan
from ...core.validation import WCU
from ...core.writes import Fill, Granted, Outcome, Refill, Refused, Take
from ...ports.repository_protocol import StoreClosed
from ..acquire.charge import Progress, Shortage, Taken, paying_if_spare, shortage
from ..acquire.send import Addressed, send_all, send_charge, step_back
from ..acquire.settle import refund
from ..coalesce.batch import read_items
from ..scope import Scope
from .items import Items
from .split_amount import Balances, Parts, split_amount, suffices

_MAX_ROUNDS = 24
# Most clients that lose a race here find that too little is left.
_ROUNDS_IN_ONE_TRANSACTION = 2
_PATIENCE_MS = 10_000
# The reserve that the items which give keep between them: none at first, so that few are written.
_RESERVES_PCT = (0, 25, 25, 25)
# Each lost race means that another client won it; a bound keeps it finite.
_MAX_ATTEMPTS = 16


async def take_from_several(scope: Scope, progress: Progress) -> Taken | Shortage | None:
    """Charge the bucket as a whole; None when there is nothing left of it."""
    home = progress.charge.home
    deadline_ms = scope.io.now_ms() + _PATIENCE_MS
    for lost in range(_MAX_ROUNDS):
        found = await read_items(scope, home)
        if not found:
            return None
        # A request is refused only while it holds no part: the bucket is judged as others see it.
        shards = list(_as_they_stood(progress, found).values())
        if not judge_shards(shards, progress.charge.intent.takes_milli).fits:
            return shortage(progress, shards)
        known = await _take_at_once(scope, progress, found)
        if known is None:
            return Taken(progress)
        if lost >= _ROUNDS_IN_ONE_TRANSACTION and await _take_in_turn(scope, progress, known):
            return Taken(progress)
        if scope.io.now_ms() > deadline_ms:
            break
        await step_back(scope, lost)
    raise StorageUnavailable(f"{home} is too contended")


async def _take_at_once(scope: Scope, progress: Progress, found: Items) -> Items | None:
    """None when all was taken, else the items as far as they are known now. An attempt that is
    refused is followed by one which knows the items that refused it as they are."""
    for reserve_pct in _RESERVES_PCT:
        parts = choose_parts(progress, found, reserve_pct)
        outcomes = await _send_parts(scope, progress, found, parts) if parts else {}
        if progress.entries:
            return None
        changed = {a: o.bucket for a, o in outcomes.items() if isinstance(o, Refused)}
        if not changed:
            break
        found = {**found, **changed}
    return found


def choose_parts(progress: Progress, found: Items, reserve_pct: int) -> Parts:
    """Which item gives how much: of what is stored, if that is plenty, else of what there is by
    now; an empty choice if that is too little."""
    asked = _asked_milli(progress)
    stored = _stored_milli(progress, found)
    if suffices(stored, asked, reserve_pct):
        return split_amount(stored, asked, reserve_pct)
    balances = _balances_milli(_as_they_stood(progress, found), asked)
    return split_amount(balances, asked, reserve_pct) if suffices(balances, asked, 0) else {}


async def _send_parts(
    scope: Scope, progress: Progress, found: Items, parts: Parts
) -> Mapping[BucketAddress, Outcome]:
    """The outcome of each part; empty when the store could not do them together."""
    writes: list[Addressed] = []
    sent: list[tuple[str, Entry]] = []
    charge = progress.charge
    for address, part_milli in parts.items():
        entry = charge.entry(address, part_milli, 0 if sent else charge.intent.acquires)
        write = plan_part(progress, found[address], entry, progress.new_operation(scope))
        writes.append((address, write))
        sent.append((write.operation, entry))
    progress.sent = sent
    try:
        outcomes = await send_all(scope, writes)
    except (StorageUnavailable, StoreClosed) as error:
        progress.give_up(error)
        if error.ambiguous or not error.retryable:
            raise
        # Other clients wrote to one of the items at the very same time: that is no outage yet.
        outcomes = []
    progress.sent = ()
    granted = [outcome.bucket for outcome in outcomes if isinstance(outcome, Granted)]
    if len(granted) == len(writes):
        progress.entries = [entry for _, entry in sent]
        progress.shards = granted
    return dict(zip(parts, outcomes, strict=False))


async def _take_in_turn(scope: Scope, progress: Progress, found: Items) -> bool:
    """True when all was taken, one item after the other; else what was had is given back."""
    missing_milli = _asked_milli(progress)
    left = dict(found)
    while any(missing_milli.values()):
        balances = _balances_milli(_as_they_stood(progress, left), missing_milli)
        if not suffices(balances, missing_milli, 0):
            await _give_back(scope, progress)
            return False
        address = max(left, key=lambda a: sum(balances[a].values()))
        await _take_part(scope, progress, address, left.pop(address), missing_milli)
    return True


async def _give_back(scope: Scope, progress: Progress) -> None:
    taken = Ledger(progress.entries)
    progress.entries, progress.shards = [], ()
    await refund(scope, taken)


async def _take_part(
    scope: Scope,
    progress: Progress,
    address: BucketAddress,
    bucket: Bucket,
    missing_milli: dict[str, int],
) -> None:
    """Take what this item can give of what is missing."""
    charge = progress.charge
    acquires = 0 if progress.entries else charge.intent.acquires
    operation, part = "", charge.entry(address, {}, acquires)
    for lost in range(_MAX_ATTEMPTS):
        part_milli = _part_milli(progress, bucket, missing_milli)
        if not part_milli:
            return
        if part_milli != part.charged_milli:
            # A write of another amount that lands late must not be taken for this one.
            operation = mark_ancestor(scope.io.operation_id())
            part = charge.entry(address, part_milli, acquires)
        write = plan_part(progress, bucket, part, operation)
        outcome = await send_charge(scope, progress, part, write)
        if not isinstance(outcome, Refused):
            break
        bucket = outcome.bucket
        await step_back(scope, lost)
    else:
        return
    if isinstance(outcome, Granted):
        for name, amount_milli in part_milli.items():
            missing_milli[name] -= amount_milli


def _part_milli(
    progress: Progress, bucket: Bucket, missing_milli: Mapping[str, int]
) -> dict[str, int]:
    cells = _as_it_stood(progress, bucket).cells
    parts_milli = {n: min(missing, cells[n].tokens_milli) for n, missing in missing_milli.items()}
    return {name: part_milli for name, part_milli in parts_milli.items() if part_milli > 0}


def _asked_milli(progress: Progress) -> dict[str, int]:
    """The amounts to be had. An item's own write allowance is not waited for here."""
    takes_milli = progress.charge.intent.takes_milli
    return {name: amount for name, amount in takes_milli.items() if amount and name != WCU}


def _as_it_stood(progress: Progress, bucket: Bucket) -> Bucket:
    """An item as it stood when the request came."""
    return at(bucket, progress.charge.limits, progress.as_of_ms, metered=True)


def _as_they_stood(progress: Progress, found: Items) -> dict[BucketAddress, Bucket]:
    return {address: _as_it_stood(progress, bucket) for address, bucket in found.items()}


def _balances_milli(shards: Items, names: Mapping[str, int]) -> Balances:
    """The tokens of each item."""
    return {
        address: {name: max(0, shard.cells[name].tokens_milli) for name in names}
        for address, shard in shards.items()
    }


def _stored_milli(progress: Progress, found: Items) -> Balances:
    """The tokens that can be taken of each item without a refill, so that it does not matter
    whether another client refills the item meanwhile."""
    names = _asked_milli(progress)
    return {
        address: {name: _drainable_milli(progress, bucket, name) for name in names}
        for address, bucket in found.items()
    }


def _drainable_milli(progress: Progress, bucket: Bucket, name: str) -> int:
    tokens_milli = bucket.cells[name].tokens_milli if name in bucket.cells else 0
    if tokens_milli <= 0:
        return 0
    all_of_it = progress.charge.intent._replace(takes_milli={name: tokens_milli})
    planned = plan(all_of_it, bucket, "", progress.as_of_ms)
    return tokens_milli if isinstance(planned, Take) else 0


def plan_part(
    progress: Progress, bucket: Bucket, part: Entry, operation: str
) -> Take | Fill | Refill:
    """The write that takes a part which the item had when the request came."""
    intent = progress.charge.intent._replace(takes_milli=part.charged_milli, acquires=part.acquires)
    planned = plan(paying_if_spare(intent, bucket), bucket, operation, progress.as_of_ms)
    assert isinstance(planned, Take | Fill | Refill), planned
    return planned
