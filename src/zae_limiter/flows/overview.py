"""All items of a bucket, as many see them in one read."""

from __future__ import annotations

from collections.abc import Sequence

from .charge import Charge
from .flight import ride
from .lanes import Rider, Seen
from .scope import Scope
from .shards import Items, read_whole

# The lane of those who look at all items is none of any item's.
_WHOLE = -1


async def overlook(scope: Scope, charge: Charge) -> Items:
    """Every item of the bucket, read since the charge came: together with whoever else of this
    process has come to look at it meanwhile."""
    home = charge.address.home
    if not scope.coalesces:
        return await read_whole(scope, home)
    lane = home._replace(shard=_WHOLE)
    try:
        if scope.lanes.start(lane, charge):
            return await read_whole(scope, home)
    finally:
        try:
            scope.lanes.leave(lane, charge)
        except BaseException:
            scope.lanes.leave(lane, charge)
            raise

    async def together(riders: Sequence[Rider]) -> None:
        found = await read_whole(scope, home)
        for rider in riders:
            rider.outcome = Seen(found)

    outcome = (await ride(scope, lane, charge, together, lambda rider: True)).outcome
    assert isinstance(outcome, Seen)
    return outcome.items
