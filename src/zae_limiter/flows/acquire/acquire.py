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
from .looks import Looks
from .one_transaction import charge_in_one_transaction
from .refusals import AcquireRefused, foresee, keep
from .request import Request, plan_charges
from .send import find_out
from .settle import pay, refund

# Each round means that another client has deleted the bucket; a bound keeps it finite.
_MAX_ROUNDS = 96
_OTHER_SHARDS = 2
# Levels are charged at the same time only where each ancestor has enough for so many of the
# request: what one charge holds until it is undone is then little of what there is.
_PLENTY = 8
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
    """Charge every level. If one is short or fails, undo the others; if one is known to be short,
    charge none. Raises `AcquireRefused`.

    Whoever does not know that all was given back does not look again: it would charge twice.
    """
    levels = [Progress(charge, charge.home) for charge in charges]
    hopeless = foresee(scope, levels)
    if hopeless:
        raise AcquireRefused(hopeless)
    corrections = scope.local.refusals.corrections
    looks = Looks(scope)
    attempt = _charge_alone if len(levels) == 1 else _charge_chain
    while True:
        try:
            return await attempt(scope, levels)
        except AcquireRefused as refused:
            if not (refused.is_undone and await looks.again(refused.short_items)):
                keep(scope, refused, corrections)
                raise
        levels = [_to_read_first(level) for level in levels]
        if len(levels) > 1:
            attempt = _charge_chain_in_doubt


def _to_read_first(level: Progress) -> Progress:
    """The charge once more, from the beginning. It reads the item before it writes: the item was
    short just now."""
    return Progress(level.charge._replace(speculative=False), level.charge.home)


async def _charge_alone(scope: Scope, levels: Sequence[Progress]) -> Charged:
    level = levels[0]
    try:
        outcome = await _charge_bucket(scope, level)
    except BaseException:
        await undo(scope, levels)
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
    finally:
        for level in levels:
            level.is_tentative = False


def _charge_chain(scope: Scope, levels: Sequence[Progress]) -> Coroutine[Any, Any, Charged]:
    """Charge levels together where each is expected to pass, otherwise in doubt."""
    if not _are_expected(scope, levels):
        return _charge_chain_in_doubt(scope, levels)
    return _charge_or_undo(scope, levels, _charge_expected)


def _charge_chain_in_doubt(
    scope: Scope, levels: Sequence[Progress]
) -> Coroutine[Any, Any, Charged]:
    return _charge_or_undo(scope, levels, _charge_in_doubt)


def _are_expected(scope: Scope, levels: Sequence[Progress]) -> bool:
    """True when each level has good reason to pass: its last image covers the request, and it did
    not refuse the last one that was expected to pass. A leaf that was not seen is probably full.
    """
    leaf, *ancestors = levels
    doubtful = ancestors if _is_unseen(scope, leaf) else levels
    doubted = scope.local.doubted
    if doubted.keys and any(doubted.get(level.charge.home) for level in levels):
        return False
    return all(_is_covered(scope, level) for level in doubtful)


def _is_unseen(scope: Scope, level: Progress) -> bool:
    return scope.local.image(draw(scope, level.charge.home)) is None


async def _charge_expected(scope: Scope, levels: Sequence[Progress]) -> _Outcomes:
    """Charge levels that are expected to pass. Whoever is short is doubted from now on: its last
    image was no good reason to charge the others."""
    leaf, *ancestors = levels
    outcomes: _Outcomes
    if not all(_is_covered(scope, level, _PLENTY) for level in ancestors):
        # Without this, a request that its child refuses would hold all that is left of a parent.
        outcomes = await _charge_upward(scope, levels)
    elif _is_unseen(scope, leaf):
        outcomes = await _charge_leaf_first(scope, levels)
    else:
        _hold(levels)
        outcomes = await scope.io.gather([_charge_bucket(scope, level) for level in levels])
    for outcome in outcomes:
        if isinstance(outcome, Shortage) and outcome.wait_ms:
            scope.local.doubted.put(outcome.progress.charge.home, True)
    return outcomes


async def _charge_leaf_first(scope: Scope, levels: Sequence[Progress]) -> _Outcomes:
    """Charge a leaf that was not seen yet, and then the levels above it at the same time."""
    leaf, *ancestors = levels
    _hold(levels if len(ancestors) > 1 else [leaf])
    first = await _charge_bucket(scope, leaf)
    if isinstance(first, Shortage):
        return [first, *[await _standing(scope, level) for level in ancestors]]
    return [first, *await scope.io.gather([_charge_bucket(scope, level) for level in ancestors])]


def _hold(levels: Sequence[Progress]) -> None:
    """Let other clients know which charges may be undone."""
    for level in levels:
        level.is_tentative = True


def _is_covered(scope: Scope, level: Progress, times: int = 1) -> bool:
    """True when the last image of the item that would be charged has enough, for the request or
    for so many like it."""
    charge = level.charge
    image = scope.local.image(draw(scope, charge.home))
    if image is None or image.fingerprint != charge.limits.fingerprint:
        return False
    takes_milli = charge.intent.takes_milli
    asked_milli = {name: times * amount for name, amount in takes_milli.items() if name != WCU}
    return covers(image, asked_milli) or covers(refill(image, scope.io.now_ms()), asked_milli)


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
    """Charge one level after the other, the lowest first, until one is short. The last is charged
    when all others have passed, so its charge is never undone for another level."""
    _hold(levels[:-1])
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
