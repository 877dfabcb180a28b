"""An acquire: every level of a chain is charged, all or none, each at an item of its bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...core.bucket import covers, refill
from ...core.exceptions import StorageUnavailable
from ...core.judge import NEVER
from ...core.ledger import Ledger
from ...core.limit import LimitSet
from ...core.validation import WCU
from ..coalesce.batch import charge_item
from ..scope import Scope
from ..shards.items import draw, is_upkeep_due, others, prefer, read_all
from ..shards.multi_take import take_from_several
from ..shards.upkeep import keep_up
from .charge import Charge, Progress, Shortage, Taken, current_items, shortage
from .one_transaction import charge_in_one_transaction
from .refusals import AcquireRefused, foresee
from .request import Request, plan_charges
from .send import find_out
from .settle import pay, refund

# Each round means that another client has deleted the bucket; a bound keeps it finite.
_MAX_ROUNDS = 96
_OTHER_SHARDS = 2


class Charged(NamedTuple):
    """The ledger of all levels, and the limits under which the entity's own bucket was charged."""

    ledger: Ledger
    limits: LimitSet


async def charge(scope: Scope, request: Request, acquires: int = 1) -> Charged:
    """Charge every level that a request concerns. Raises `AcquireRefused`."""
    return await charge_levels(scope, await plan_charges(scope, request, acquires))


async def charge_levels(scope: Scope, charges: Sequence[Charge]) -> Charged:
    """Charge every level at once. If one is short or fails, undo the others; if one is known
    to be short, charge none. Raises `AcquireRefused`."""
    levels = [Progress(charge, charge.home) for charge in charges]
    hopeless = foresee(scope, levels)
    if hopeless:
        raise AcquireRefused(hopeless)
    outcomes: Sequence[Taken | Shortage | BaseException]
    try:
        if len(levels) == 1:
            outcome = await _charge_bucket(scope, levels[0])
            if isinstance(outcome, Taken):
                return Charged(Ledger(levels[0].entries), levels[0].charge.limits)
            outcomes = (outcome,)
        else:
            outcomes = await _charge_chain(scope, levels)
        if all(isinstance(outcome, Taken) for outcome in outcomes):
            return Charged(_ledger(levels), levels[0].charge.limits)
        raise _worst(outcomes)
    except BaseException:
        await undo(scope, levels)
        raise


async def _charge_chain(
    scope: Scope, levels: Sequence[Progress]
) -> Sequence[Taken | Shortage | BaseException]:
    """Charge levels in parallel where each is expected to pass. In doubt nothing of an upper level
    is held before the lower ones have passed: another request could be refused for it."""
    leaf, *ancestors = levels
    now_ms = scope.io.now_ms()
    is_leaf_unseen = scope.local.image(draw(scope, leaf.charge.home)) is None
    doubtful = ancestors if is_leaf_unseen else levels
    if not all(_is_covered(scope, level, now_ms) for level in doubtful):
        return await _charge_in_doubt(scope, levels)
    if not is_leaf_unseen:
        return await scope.io.gather([_charge_bucket(scope, level) for level in levels])
    first = await _charge_bucket(scope, leaf)
    if isinstance(first, Shortage):
        return [first, *[await _standing(scope, level) for level in ancestors]]
    return [first, *await scope.io.gather([_charge_bucket(scope, level) for level in ancestors])]


def _is_covered(scope: Scope, level: Progress, now_ms: int) -> bool:
    """True when the last image of the item that would be charged has enough."""
    charge = level.charge
    image = scope.local.image(draw(scope, charge.home))
    if image is None or image.fingerprint != charge.limits.fingerprint:
        return False
    asked_milli = {name: n for name, n in charge.intent.takes_milli.items() if name != WCU}
    return covers(image, asked_milli) or covers(refill(image, now_ms), asked_milli)


async def _standing(scope: Scope, level: Progress) -> Shortage:
    """Read how a level that was not charged stands towards the request: the wait that the caller
    is told is the longest of all levels."""
    found = await read_all(scope, level.charge.home)
    items = current_items(level.charge, list(found.values()), scope.io.now_ms())
    return shortage(level, items)


async def _charge_in_doubt(
    scope: Scope, levels: Sequence[Progress]
) -> Sequence[Taken | Shortage | BaseException]:
    """Charge all levels in one transaction or, where that cannot be, the lower ones first."""
    refusals = scope.local.refusals
    corrections = refusals.corrections
    outcomes = await charge_in_one_transaction(scope, levels)
    if outcomes is None:
        return await _charge_upward(scope, levels)
    for outcome in outcomes:
        home = outcome.progress.charge.home
        if isinstance(outcome, Taken):
            refusals.forget(home)
        elif outcome.wait_ms:
            refusals.keep(home, outcome.shards, scope.io.now_ms(), corrections)
    return outcomes


async def _charge_upward(scope: Scope, levels: Sequence[Progress]) -> list[Taken | Shortage]:
    """Charge one level after the other, the lowest first, until one is short."""
    outcomes: list[Taken | Shortage] = []
    is_short = False
    for level in levels:
        charge = _standing if is_short else _charge_bucket
        outcomes.append(await charge(scope, level))
        is_short = is_short or isinstance(outcomes[-1], Shortage)
    return outcomes


def _worst(outcomes: Sequence[Taken | Shortage | BaseException]) -> BaseException:
    """The failure to raise: an interrupt before an `Exception`, a refusal last."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    failures.sort(key=lambda failure: isinstance(failure, Exception))
    if failures:
        return failures[0]
    return AcquireRefused([o for o in outcomes if not isinstance(o, BaseException)])


def _ledger(levels: Sequence[Progress]) -> Ledger:
    return Ledger([entry for level in levels for entry in level.entries])


async def undo(scope: Scope, levels: Sequence[Progress]) -> None:
    """Give back what these charges took, also where the answer never arrived."""
    if any(level.sent or level.entries for level in levels):
        await scope.io.shield(_undo(scope, levels))


async def _undo(scope: Scope, levels: Sequence[Progress]) -> None:
    try:
        for level in levels:
            if level.sent:
                await find_out(scope, level)
    finally:
        await pay(scope, refund(scope, _ledger(levels)))


async def _charge_bucket(scope: Scope, progress: Progress) -> Taken | Shortage:
    """Charge one bucket, in one call when the item that is drawn has the balance."""
    refusals, home = scope.local.refusals, progress.charge.home
    corrections = refusals.corrections
    if is_upkeep_due(scope, home):
        await keep_up(scope, progress)
    progress.as_of_ms = scope.io.now_ms()
    outcome = await _charge_drawn(scope, progress)
    if isinstance(outcome, Shortage) and scope.local.shard_count(home) > 1:
        outcome = await _charge_several(scope, progress)
    if isinstance(outcome, Shortage):
        refusals.keep(home, outcome.shards, scope.io.now_ms(), corrections)
    else:
        refusals.forget(home)
    return outcome


async def _charge_drawn(scope: Scope, progress: Progress) -> Taken | Shortage:
    """Charge the item that is drawn, else another, if there are any."""
    progress.address = draw(scope, progress.charge.home)
    outcome = await charge_item(scope, progress)
    if isinstance(outcome, Taken) or scope.local.shard_count(progress.charge.home) == 1:
        return outcome
    # A request that is more than this shard can ever hold is more than its siblings can, too.
    tries = 0 if outcome.wait_ms == NEVER else _OTHER_SHARDS
    for address in others(scope, progress.address, tries):
        progress.address = address
        outcome = await charge_item(scope, progress)
        if isinstance(outcome, Taken):
            prefer(scope, address)
            break
    return outcome


async def _charge_several(scope: Scope, progress: Progress) -> Taken | Shortage:
    """Charge several items of a bucket, none of which has enough alone."""
    home = progress.charge.home
    for _ in range(_MAX_ROUNDS):
        outcome = await take_from_several(scope, progress)
        if outcome is not None:
            return outcome
        # The bucket was deleted meanwhile, so it starts anew.
        scope.local.splits.discard(home)
        outcome = await _charge_drawn(scope, progress)
        if isinstance(outcome, Taken) or scope.local.shard_count(home) == 1:
            return outcome
    raise StorageUnavailable(f"{home} is deleted again and again")
