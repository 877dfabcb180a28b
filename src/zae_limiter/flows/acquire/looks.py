"""Looking again at items that are short, before anybody is refused for it.

A cascade is charged in parallel where its levels are expected to pass. If one refuses, the others
are given back what they were charged. Another client may find them short meanwhile, and must not be
refused for tokens that nobody got. The ids of such charges are marked, and an item remembers its
last ids. So a refusal costs another look only where a charge may be about to be undone.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core.bucket import Bucket
from ...core.idempotency import planned_at_ms
from ..scope import Scope
from .marks import held_for_ms, undecided

_MOST_LOOKS = 9
_LONGEST_PAUSE_MS = 50
# A charge is undone within about two calls. It is looked for as long as so many take, and for no
# less than that many milliseconds: the client that holds it may have to wait for its processor.
_CALLS_HELD = 8
_LEAST_HELD_MS = 250
# Clocks of clients differ. So a charge that seems to be old is a reason for a second look, too,
# though for no third.
_SKEW_MS = 5000


class Looks:
    """The looks of one request at the items that it asks of, each a little later than the last."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._began_ms = scope.io.now_ms()
        self._took_ms = 0
        self._looked = 0

    async def again(self, short: Iterable[Bucket]) -> bool:
        """Wait until charges that these items remember should have been undone, and return True.
        False when that cannot be what they lack, or when there has been time enough for it."""
        io = self._scope.io
        if not self._looked:
            self._took_ms = io.now_ms() - self._began_ms
        self._looked += 1
        # Without this, a refusal would become an outage: the next look would find no time left.
        has_time = io.left_s() * 1000 > 2 * (self._took_ms + _LONGEST_PAUSE_MS)
        if self._looked >= _MOST_LOOKS or not has_time:
            return False
        if not any(self._is_held(item) for item in short):
            return False
        pause_ms = min(max(1, self._took_ms) * 2 ** (self._looked - 1), _LONGEST_PAUSE_MS)
        await io.signal().wait(pause_ms / 1000, for_store=True)
        return True

    def _is_held(self, item: Bucket) -> bool:
        """Whether tokens of an item may be about to come back. Many clients may hold some of an
        ancestor's, one after the other, so a second look does not settle that."""
        if self._looked > 1:
            ago_ms = held_for_ms(self._scope, item)
            return ago_ms is not None and ago_ms <= max(_LEAST_HELD_MS, _CALLS_HELD * self._took_ms)
        since_ms = self._scope.io.now_ms() - _SKEW_MS
        return any(planned_at_ms(charge) >= since_ms for charge in undecided(self._scope, item))
