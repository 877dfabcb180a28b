"""An acquire: every level of a chain is charged, all or none, each at an item of its bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...core.exceptions import StorageUnavailable
from ...core.judge import NEVER
from ...core.ledger import Ledger
from ...core.limit import LimitSet
from ..coalesce.batch import charge_item
from ..scope import Scope
from ..shards.items import draw, others, prefer
from ..shards.multi_take import take_from_several
from .charge import Charge, Progress, Shortage, Taken
from .refusals import AcquireRefused, foresee
from .send import find_out
from .settle import refund

# Each round means that another client has deleted the bucket; a bound keeps it finite.
_MAX_ROUNDS = 96
_OTHER_SHARDS = 2


class Charged(NamedTuple):
    """The ledger of all levels, and the limits under which the entity's own bucket was charged."""

    ledger: Ledger
    limits: LimitSet


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
            outcomes = await scope.io.gather([_charge_bucket(scope, level) for level in levels])
        if all(isinstance(outcome, Taken) for outcome in outcomes):
            return Charged(_ledger(levels), levels[0].charge.limits)
        raise _worst(outcomes)
    except BaseException:
        await undo(scope, levels)
        raise


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
    try:
        for level in levels:
            if level.sent:
                await find_out(scope, level)
    finally:
        await refund(scope, _ledger(levels))


async def _charge_bucket(scope: Scope, progress: Progress) -> Taken | Shortage:
    """Charge one bucket, in one call when the item that is drawn has the balance."""
    refusals, home = scope.local.refusals, progress.charge.home
    corrections = refusals.corrections
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
        scope.local.shard_counts.discard(home)
        outcome = await _charge_drawn(scope, progress)
        if isinstance(outcome, Taken) or scope.local.shard_count(home) == 1:
            return outcome
    raise StorageUnavailable(f"{home} is deleted again and again")
