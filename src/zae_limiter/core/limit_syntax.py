"""This module reads and writes limits as text, on a command line and in Python.

Typed: `rpm:1000`, `rpm:1000/min`, `tpm:50000/5min:80000`, `rpm: 100/minute; burst 20`. Printed:
`rpm: 1,000/min` and `tpm: 50,000/5min (burst: 80,000)`. Every form can be typed. Without a burst,
a limit holds at most its rate.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .exceptions import InvalidLimitError

if TYPE_CHECKING:
    from .limit import Limit

FORM = "name:rate[/period][:burst], for example rpm:1000/min or tpm:50000/5min:80000"
_UNIT_SECONDS = {"day": 86_400, "hour": 3_600, "min": 60, "sec": 1}
_LONG_UNITS = {"minute": "min", "second": "sec"}
_UNIT = "|".join([*_LONG_UNITS, *_UNIT_SECONDS])
_MAX_DIGITS = 20
_NUMBER = r"[0-9]+(?:,[0-9]{3})*"
_LIMIT = re.compile(
    rf"""
    (?: (?P<name>[^\s:/]+) \s* : \s* )? (?P<rate>{_NUMBER})
    (?: (?: / | \s+ per \s+ ) (?P<count>[0-9]*) (?P<unit>{_UNIT}) )?
    (?: : (?P<burst>{_NUMBER})
      | \s+ \( burst: \s* (?P<printed_burst>{_NUMBER}) \)
      | \s* ; \s* burst \s+ (?P<said_burst>{_NUMBER}) )?
    """,
    re.VERBOSE | re.ASCII,
)


def read_limit(text: str, name: str | None = None) -> tuple[str, int, int, int]:
    """Return the name, capacity, refill amount and refill period that a text describes. `name` is
    for a text without one, which must say its period; `InvalidLimitError` when it is no limit."""
    found = _LIMIT.fullmatch(text.strip())
    if found is None or not (found["name"] or (name and found["unit"])):
        raise InvalidLimitError("limit", text, f"{text!r} is not {FORM}")
    rate = _number(found["rate"])
    burst = found["burst"] or found["printed_burst"] or found["said_burst"]
    capacity = rate if burst is None else _number(burst)
    period_seconds = _period_seconds(found["count"], found["unit"])
    return found["name"] or name or "", capacity, rate, period_seconds


def format_limit(limit: Limit) -> str:
    """Return the text that `Limit.parse` reads as this limit."""
    text = f"{limit.name}: {format_rate(limit)}"
    return text if limit.capacity == limit.refill_amount else f"{text} (burst: {limit.capacity:,})"


def format_rate(limit: Limit) -> str:
    """Return amount and period of a limit, in the largest unit that is exact: `1,000/5min`."""
    seconds = limit.refill_period_seconds
    unit = next(unit for unit, size in _UNIT_SECONDS.items() if seconds % size == 0)
    count = seconds // _UNIT_SECONDS[unit]
    return f"{limit.refill_amount:,}/{'' if count == 1 else count}{unit}"


def _number(text: str) -> int:
    # A limit refuses numbers of 17 digits, and Python refuses to read thousands of them.
    return int(text.replace(",", "").lstrip("0")[:_MAX_DIGITS] or 0)


def _period_seconds(count: str | None, unit: str | None) -> int:
    unit = unit or "min"
    return _number(count or "1") * _UNIT_SECONDS[_LONG_UNITS.get(unit, unit)]
