"""All items of a bucket, as many see them in one read."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from ..acquire.charge import Charge
from ..coalesce.flight import fly
from ..coalesce.queue import Rider, Seen
from ..scope import Scope
from .items import Items, read_whole

# The lane of those who look at all items is none of any item's.
_WHOLE = -1


async def overlook(scope: Scope, charge: Charge) -> Items:
    """Every item of the bucket, read since the charge came: together with whoever else of this
    process has come to look at it meanwhile."""
    home = charge.address.home
    if not scope.coalesces:
        return await read_whole(scope, home)

    def alone() -> Awaitable[Items]:
        return read_whole(scope, home)

    async def together(riders: Sequence[Rider]) -> None:
        found = await read_whole(scope, home)
        for rider in riders:
            rider.outcome = Seen(found)

    lane = home._replace(shard=_WHOLE)
    flown = await fly(scope, lane, charge, alone, together, lambda rider: True)
    if not isinstance(flown, Rider):
        return flown
    assert isinstance(flown.outcome, Seen)
    return flown.outcome.items
