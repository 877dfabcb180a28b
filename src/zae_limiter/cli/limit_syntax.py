"""This module reads and writes limits as text on a command line.

Typed: `rpm:1000`, `rpm:1000/min`, `tpm:50000/5min:80000`. Printed: `rpm: 1,000/min` and `tpm:
50,000/5min (burst: 80,000)`. Either form can be typed.
"""

from __future__ import annotations

import re

from ..core.limit import Limit

FORM = "name:rate[/period][:burst], for example rpm:1000/min or tpm:50000/5min:80000"
_UNIT_SECONDS = {"day": 86_400, "hour": 3_600, "min": 60, "sec": 1}
_NUMBER = r"[0-9]+(?:,[0-9]{3})*"
_LIMIT = re.compile(
    rf"""
    (?P<name>[^\s:/]+) \s* : \s* (?P<rate>{_NUMBER})
    (?: / (?P<count>[0-9]*) (?P<unit>{"|".join(_UNIT_SECONDS)}) )?
    (?: : (?P<burst>{_NUMBER}) | \s+ \( burst: \s* (?P<printed_burst>{_NUMBER}) \) )?
    """,
    re.VERBOSE | re.ASCII,
)


def parse_limit(text: str) -> Limit:
    """Return the limit that a text describes; `ValueError` or `ValidationError` when it describes
    none."""
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not {FORM}")
    rate = _number(found["rate"])
    burst = found["burst"] or found["printed_burst"]
    capacity = rate if burst is None else _number(burst)
    return Limit(found["name"], capacity, rate, _period_seconds(found["count"], found["unit"]))


def format_limit(limit: Limit) -> str:
    """Return the text that `parse_limit` reads as this limit."""
    text = f"{limit.name}: {format_rate(limit)}"
    return text if limit.capacity == limit.refill_amount else f"{text} (burst: {limit.capacity:,})"


def format_rate(limit: Limit) -> str:
    """Return amount and period of a limit, in the largest unit that is exact: `1,000/5min`."""
    seconds = limit.refill_period_seconds
    unit = next(unit for unit, size in _UNIT_SECONDS.items() if seconds % size == 0)
    count = seconds // _UNIT_SECONDS[unit]
    return f"{limit.refill_amount:,}/{'' if count == 1 else count}{unit}"


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _period_seconds(count: str | None, unit: str | None) -> int:
    return int(count or 1) * _UNIT_SECONDS[unit or "min"]
