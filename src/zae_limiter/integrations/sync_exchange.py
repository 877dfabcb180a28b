"""A blocking exchange is one request with its response, and the leases that it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..core.exceptions import LeaseExpiredError, RateLimiterUnavailable
from ..lease import SyncLease
from ..sync_limiter import SyncRateLimiter
from .call import Call
from .http_fields import Fields
from .http_options import HttpOptions
from .problem import HttpAnswer
from .rule import Reservation, reservation_of


class SyncExchange:
    """The leases of one request, which end together: all stand, or all are given back."""

    def __init__(self, options: HttpOptions, limiter: SyncRateLimiter) -> None:
        self.leases: list[SyncLease] = []
        self._options = options
        self._limiter = limiter

    def charge(self, call: Call) -> None:
        """Charge a call by the first rule that covers it."""
        reservation = reservation_of(self._options.rules, call)
        if reservation is not None:
            self.reserve(reservation)

    def reserve(self, reservation: Reservation) -> SyncLease:
        """Charge, and hold the lease until the exchange ends."""
        lease = self._limiter.reserve(**reservation)
        self.leases.append(lease)
        return lease

    def fields(self) -> Fields:
        """Return the header fields of the limits."""
        return self._options.fields(self.leases)

    def settle(self, status: int) -> None:
        """End the exchange with the status that was answered."""
        self.end(kept=not self._options.refunds(status))

    def refunds(self, status: int) -> bool:
        """Tell whether a status means that the request is not charged."""
        return self._options.refunds(status)

    def refuse(self, error: BaseException) -> HttpAnswer | None:
        """Give everything back, and return the answer to an error, if the limiter has one."""
        self.end(kept=False)
        return self._options.answer(error)

    def end(self, *, kept: bool) -> None:
        """End every lease. An interrupt is raised again when all of them have ended."""
        interrupt: BaseException | None = None
        while self.leases:
            lease = self.leases.pop()
            try:
                if kept:
                    lease.commit()
                else:
                    lease.release()
            except (LeaseExpiredError, RateLimiterUnavailable):
                # The application has ended it, or the store is down, which has been logged.
                continue
            except BaseException as error:
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt


class LeasedBody:
    """The chunks of a body, passed on; when they end or are closed, an exchange ends.

    A server closes the body of a client that has left: the charge stands as it was adjusted.
    """

    def __init__(self, chunks: Iterator[bytes], body: object, end: Callable[[], None]) -> None:
        self._chunks = chunks
        self._body = body
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Close the application's body, as WSGI servers do, and end the exchange."""
        try:
            close_body(self._body)
        finally:
            self._end()


def close_body(body: object) -> None:
    """Close a body, if it can be closed."""
    close = getattr(body, "close", None)
    if close is not None:
        close()
