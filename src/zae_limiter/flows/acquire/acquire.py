"""An acquire: every level of a chain is charged, all or none, each at an item of its bucket."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from ...core.bucket import covers, refill
from ...core.exceptions import StorageUnavailable
from ...core.judge import NEVER
from ...core.ledger import Ledger
from ...core.limit import LimitSet
from ...core.receipts import HeldReceipt
from ...core.validation import WCU
from ..coalesce.batch import charge_item
from ..scope import Scope
from ..shards.items import draw, is_upkeep_due, others, prefer, read_all
from ..shards.multi_take import take_from_several
from ..shards.upkeep import keep_up
from .charge import Charge, Progress, Shortage, Taken, current_items, shortage
from .one_transaction import charge_in_one_transaction
from .refusals import AcquireRefused, foresee, keep
from .request import Request, plan_charges
from .send import find_out
from .settle import pay, refund

# Each round means that another client has deleted the bucket; a bound keeps it finite.
_MAX_ROUNDS = 96
_OTHER_SHARDS = 2
_LONGEST_PAUSE_MS = 50
_Outcomes = Sequence[Taken | Shortage | BaseException]
_Attempt = Callable[[Scope, Sequence[Progress]], Coroutine[Any, Any, _Outcomes]]


class Charged(NamedTuple):
    """The ledger of all levels, and the limits under which the entity's own bucket was charged.

    `held`: the receipt of the charge, if the request asks for one.
    """

    ledger: Ledger
    limits: LimitSet
    held: HeldReceipt | None = None


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
    corrections = scope.local.refusals.corrections
    try:
        if len(levels) == 1:
            return await _charge_alone(scope, levels[0])
        return await _charge_chain(scope, levels)
    except AcquireRefused as refused:
        keep(scope, refused, corrections)
        raise


async def _charge_alone(scope: Scope, level: Progress) -> Charged:
    try:
        outcome = await _charge_bucket(scope, level)
    except BaseException:
        await undo(scope, [level])
        raise
    if isinstance(outcome, Shortage):
        raise AcquireRefused([outcome])
    return Charged(Ledger(level.entries), level.charge.limits)


async def _charge_or_undo(scope: Scope, levels: Sequence[Progress], attempt: _Attempt) -> Charged:
    """Charge all levels in the way of `attempt`; unless all pass, undo what was charged."""
    try:
        outcomes = await attempt(scope, levels)
        if all(isinstance(outcome, Taken) for outcome in outcomes):
            return Charged(_ledger(levels), levels[0].charge.limits)
        raise _worst(outcomes)
    except AcquireRefused as refused:
        refused.is_undone = await undo(scope, levels)
        raise
    except BaseException:
        await undo(scope, levels)
        raise


async def _charge_chain(scope: Scope, levels: Sequence[Progress]) -> Charged:
    """Charge levels in parallel where each is expected to pass, otherwise in doubt. Look again
    before an ancestor's refusal is told or remembered: the ancestor may have lacked tokens that
    another client holds for a request of its own, which is refused and undone. Whoever does not
    know that all was given back does not look again: it would charge twice."""
    began_ms = scope.io.now_ms()
    attempt = _charge_in_parallel if _are_expected(scope, levels) else _charge_in_doubt
    try:
        return await _charge_or_undo(scope, levels, attempt)
    except AcquireRefused as refused:
        if not (refused.is_undone and refused.is_an_ancestor_short_for_now):
            raise
    # Another client's charge is undone within about two calls, and one call has been made.
    took_ms = min(scope.io.now_ms() - began_ms, _LONGEST_PAUSE_MS)
    if took_ms > 0:
        await scope.io.signal().wait(took_ms / 1000, for_store=True)
    again = [Progress(level.charge, level.charge.home) for level in levels]
    return await _charge_or_undo(scope, again, _charge_in_doubt)


def _are_expected(scope: Scope, levels: Sequence[Progress]) -> bool:
    """True when each level has good reason to pass: its last image covers the request, and it did
    not refuse the last one that was charged in parallel. A leaf that was not seen is probably full.
    """
    now_ms = scope.io.now_ms()
    leaf, *ancestors = levels
    doubtful = ancestors if _is_unseen(scope, leaf) else levels
    doubted = scope.local.doubted
    if doubted.keys and any(doubted.get(level.charge.home) for level in levels):
        return False
    return all(_is_covered(scope, level, now_ms) for level in doubtful)


def _is_unseen(scope: Scope, level: Progress) -> bool:
    return scope.local.image(draw(scope, level.charge.home)) is None


async def _charge_in_parallel(scope: Scope, levels: Sequence[Progress]) -> _Outcomes:
    """Charge all levels at the same time; before the others a leaf that was not seen yet. Whoever
    is short is doubted from now on: its last image was no good reason to charge the others."""
    leaf, *ancestors = levels
    outcomes: _Outcomes
    if not _is_unseen(scope, leaf):
        outcomes = await scope.io.gather([_charge_bucket(scope, level) for level in levels])
    else:
        first = await _charge_bucket(scope, leaf)
        if isinstance(first, Shortage):
            return [first, *[await _standing(scope, level) for level in ancestors]]
        rest = await scope.io.gather([_charge_bucket(scope, level) for level in ancestors])
        outcomes = [first, *rest]
    for outcome in outcomes:
        if isinstance(outcome, Shortage):
            scope.local.doubted.put(outcome.progress.charge.home, True)
    return outcomes


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


async def _charge_in_doubt(scope: Scope, levels: Sequence[Progress]) -> _Outcomes:
    """Charge all levels in one transaction or, where that cannot be, the lower ones first."""
    outcomes = await charge_in_one_transaction(scope, levels)
    if outcomes is None:
        outcomes = await _charge_upward(scope, levels)
    for outcome in outcomes:
        if isinstance(outcome, Taken):
            home = outcome.progress.charge.home
            scope.local.refusals.forget(home)
            scope.local.doubted.discard(home)
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


def _worst(outcomes: _Outcomes) -> BaseException:
    """The failure to raise: an interrupt before an `Exception`, a refusal last."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    failures.sort(key=lambda failure: isinstance(failure, Exception))
    if failures:
        return failures[0]
    return AcquireRefused([o for o in outcomes if not isinstance(o, BaseException)])


def _ledger(levels: Sequence[Progress]) -> Ledger:
    return Ledger([entry for level in levels for entry in level.entries])


async def undo(scope: Scope, levels: Sequence[Progress]) -> bool:
    """Give back what these charges took, also where the answer never arrived. True when nothing
    of it is charged any more."""
    if any(level.sent or level.entries for level in levels):
        return await scope.io.shield(_undo(scope, levels))
    return True


async def _undo(scope: Scope, levels: Sequence[Progress]) -> bool:
    is_refunded = False
    try:
        for level in levels:
            if level.sent:
                await find_out(scope, level)
    finally:
        is_refunded = await pay(scope, refund(scope, _ledger(levels)))
    return is_refunded and not any(level.sent for level in levels)


async def _charge_bucket(scope: Scope, progress: Progress) -> Taken | Shortage:
    """Charge one bucket, in one call when the item that is drawn has the balance."""
    home = progress.charge.home
    if is_upkeep_due(scope, home):
        await keep_up(scope, progress)
    progress.as_of_ms = scope.io.now_ms()
    outcome = await _charge_drawn(scope, progress)
    if isinstance(outcome, Shortage) and scope.local.shard_count(home) > 1:
        outcome = await _charge_several(scope, progress)
    if isinstance(outcome, Taken):
        scope.local.refusals.forget(home)
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
