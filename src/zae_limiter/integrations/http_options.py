"""The options that the middleware of every framework shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..lease import Lease, SyncLease
from .http_fields import Expose, Fields, rate_limit_fields
from .problem import HttpAnswer, answer_to
from .rule import Rule


def is_server_error(status: int) -> bool:
    """Tell whether a status says that the server failed, so that the call is not charged."""
    return status >= 500


@dataclass(frozen=True)
class HttpOptions:
    """The options of a middleware.

    `expose`: whether answers tell of ancestors (`all`) or not (`own`). `legacy_fields`: whether
    they carry `X-RateLimit-*`. `refunds`: the statuses for which a call is not charged.
    """

    rules: Iterable[Rule] = ()
    expose: Expose = "own"
    legacy_fields: bool = False
    refunds: Callable[[int], bool] = is_server_error

    def fields(self, leases: Iterable[Lease | SyncLease]) -> Fields:
        """Return the header fields for an answer to a call that holds these leases: lists of all
        their limits, and `X-RateLimit-*` of the first lease."""
        merged: dict[str, str] = {}
        for lease in leases:
            found = rate_limit_fields(lease.statuses, self.expose, legacy=self.legacy_fields)
            for name, value in found:
                is_list = name in merged and not name.startswith("X-")
                merged[name] = f"{merged[name]}, {value}" if is_list else merged.get(name, value)
        return list(merged.items())

    def answer(self, error: BaseException) -> HttpAnswer | None:
        """Return the answer to an error; None when the limiter has none."""
        return answer_to(error, self.expose, legacy=self.legacy_fields)
