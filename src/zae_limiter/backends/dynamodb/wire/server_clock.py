"""The server clock learns from the `Date` of answers how far our clock is off."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime

_TOLERANCE_S = 2.0
# Clients are left alone within the tolerance, and dates tell seconds. So one client may be three
# seconds ahead of the server and another three behind, and the tolerance is for one of them.
UNSURE_MS = 4000


class ServerClock:
    """The server clock estimates the difference between the server's time and ours.

    A date names a second between sending and receiving, so each answer gives an interval for
    the difference. Intervals are intersected until an answer contradicts them: then a clock was
    set. A difference within the tolerance counts as none, because our own clock is as good.
    """

    def __init__(self) -> None:
        self.offset_s = 0.0
        self._last_date = ""
        self._low_s, self._high_s = -math.inf, math.inf

    @property
    def offset_ms(self) -> int:
        """Return the milliseconds to add to our time. Zero unless our clock is clearly wrong."""
        return round(self.offset_s * 1000)

    @property
    def difference_s(self) -> float | None:
        """Return the seconds that the server is ahead of us, as well as dates can tell; None while
        no answer had one."""
        return None if math.isinf(self._low_s) else (self._low_s + self._high_s) / 2

    def observe(self, date: str | None, sent_s: float, received_s: float) -> bool:
        """Learn from an answer, and say whether that changed anything."""
        if not date or date == self._last_date:
            return False
        self._last_date = date
        try:
            stamped_s = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return False
        self._narrow(stamped_s - received_s, stamped_s + 1 - sent_s)
        if self._low_s - _TOLERANCE_S <= self.offset_s <= self._high_s + _TOLERANCE_S:
            return False
        middle_s = (self._low_s + self._high_s) / 2
        self.offset_s = middle_s if abs(middle_s) > _TOLERANCE_S else 0.0
        return True

    def _narrow(self, low_s: float, high_s: float) -> None:
        self._low_s, self._high_s = max(self._low_s, low_s), min(self._high_s, high_s)
        if self._low_s > self._high_s:
            self._low_s, self._high_s = low_s, high_s
