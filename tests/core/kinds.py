"""Writes by the names that tests give them: a taking has one for each of its cases."""

from __future__ import annotations

from zae_limiter.core.writes import Take

STORED = "Take of what is stored"
GAINED = "Take of what was gained"
UNSEEN = "Take from an unseen bucket"


def kind_of(planned: object) -> str:
    """The kind of a write, or of what is planned in its place."""
    if not isinstance(planned, Take):
        return type(planned).__name__
    if planned.unexpired:
        return UNSEEN
    return STORED if planned.refilled_until_ms is None else GAINED
