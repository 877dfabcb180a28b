"""A finding is the result of one check: its state, what was seen, and what would mend it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...core.exceptions import RateLimiterUnavailable, ZAELimiterError

# A warning is worth an operator's look; a problem keeps the limiter from its work; what is unknown
# could not be checked, for lack of permission or of an answer.
State = Literal["ok", "warning", "problem", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding is the result of one check. `fix` is empty where there is nothing to mend."""

    check: str
    state: State
    message: str
    fix: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON shows it."""
        return asdict(self)


async def guarded(check: str, fix: str, findings: Awaitable[Iterable[Finding]]) -> list[Finding]:
    """Carry a check out. A check that fails is a finding itself, so that the others go on."""
    try:
        return [*await findings]
    except RateLimiterUnavailable as error:
        return [Finding(check, "unknown", str(error), fix)]
    except ZAELimiterError as error:
        return [Finding(check, "problem", str(error), fix)]
