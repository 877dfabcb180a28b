"""Leases: the right to do what was charged for, and to correct the charge."""

from __future__ import annotations

import warnings
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from .core.exceptions import LeaseExpiredError, ValidationError
from .core.ledger import Entry
from .core.models import LimitStatus
from .flows.acquire import lease as flows
from .flows.acquire import lease_record as told
from .flows.acquire.lease_record import LeaseRecord, LeaseTerms
from .flows.acquire.listening import tell_listeners
from .flows.acquire.request import Request
from .flows.scope import Scope
from .limiter_base import LimiterBase, resuming
from .runtime.asyncio_driver import drive
from .runtime.blocking import run


class _LeaseBase:
    """The properties that the asynchronous and the blocking lease share."""

    is_reserved = False
    """Whether the lease has no block, so that its holder must end it."""

    def __init__(self, record: LeaseRecord) -> None:
        self._record = record

    def __del__(self) -> None:
        if self.is_reserved and self._record.is_endable:
            message = f"{self!r} was never ended: call commit() or release()"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.consumed}>"

    @property
    def id(self) -> str:
        """A name that no other lease has, but for repeats of an idempotency key: they have the id
        of the first lease."""
        return told.lease_id(self._record)

    @property
    def is_repeat(self) -> bool:
        """True when the idempotency key had been charged for before, so that nothing was charged
        now."""
        held = self._record.held
        return held is not None and held.is_repeat

    def token(self) -> str:
        """Return the lease as text, for `from_token` in another process of the same namespace. A
        lease with a token need not be ended here. Needs `lease_ttl` or `idempotency_key`."""
        text = told.token(self._record)
        self.is_reserved = False
        return text

    @property
    def entries(self) -> list[Entry]:
        """The buckets that were charged, the entity's own first."""
        return self._record.ledger.entries

    @property
    def consumed(self) -> dict[str, int]:
        """The tokens taken of each limit over all levels, corrections included."""
        return self._record.ledger.consumed

    @property
    def remaining(self) -> dict[str, int]:
        """The balance of each limit as of the last write that this process saw, the least of all
        levels. No call is made."""
        return told.remaining(self._record)

    @property
    def statuses(self) -> list[LimitStatus]:
        """The status of each limit of each level, the entity's own first, as of the last write
        that this process saw. No call is made."""
        return told.standing(self._record)

    @property
    def degraded(self) -> bool:
        """True when the store could not answer and the call was let through uncharged."""
        return self._record.degraded


class Lease(_LeaseBase):
    """A lease is a charge, corrected when its block ends and refunded if the block fails."""

    @classmethod
    async def from_token(cls, limiter: LimiterBase, token: str) -> Self:
        """Return the lease whose token this is, to be ended here. Of all processes that try, one
        ends it; the others get `LeaseExpiredError`."""
        lease = cls(await drive(resuming(limiter, token, cls)))
        lease.is_reserved = True
        return lease

    async def consume(self, /, **amounts: int) -> None:
        """Charge more now, at every level, or raise `RateLimitExceeded` and charge nothing."""
        await drive(flows.consume(self._record, amounts))

    async def adjust(self, /, **amounts: int) -> None:
        """Add to the charge (or, negative, take from it) when the block ends.

        An adjustment is never refused: a bucket may go into debt, which later refills repay.
        """
        flows.adjust(self._record, amounts)

    async def release(self, /, **amounts: int) -> None:
        """Give back part of the charge when the lease ends: `adjust` with the opposite sign.
        Without amounts, give all of it back now, and end the lease."""
        if amounts:
            flows.adjust(self._record, amounts, sign=-1)
        else:
            await drive(flows.give_back(self._record))

    async def commit(self, /, **actual: int) -> None:
        """Set the true totals of the limits that are named, now and at every level, and end the
        lease: from now on the charge stands, whatever happens in the block."""
        await drive(flows.commit(self._record, actual))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await drive(flows.end_lease(self._record, failed=kind is not None))


class SyncLease(_LeaseBase):
    """A blocking lease is a `Lease` without await."""

    @classmethod
    def from_token(cls, limiter: LimiterBase, token: str) -> Self:
        """Return the lease whose token this is, to be ended here. Of all processes that try, one
        ends it; the others get `LeaseExpiredError`."""
        lease = cls(run(resuming(limiter, token, cls)))
        lease.is_reserved = True
        return lease

    def consume(self, /, **amounts: int) -> None:
        """Charge more now, at every level, or raise `RateLimitExceeded` and charge nothing."""
        run(flows.consume(self._record, amounts))

    def adjust(self, /, **amounts: int) -> None:
        """Add to the charge (or, negative, take from it) when the block ends.

        An adjustment is never refused: a bucket may go into debt, which later refills repay.
        """
        flows.adjust(self._record, amounts)

    def release(self, /, **amounts: int) -> None:
        """Give back part of the charge when the lease ends: `adjust` with the opposite sign.
        Without amounts, give all of it back now, and end the lease."""
        if amounts:
            flows.adjust(self._record, amounts, sign=-1)
        else:
            run(flows.give_back(self._record))

    def commit(self, /, **actual: int) -> None:
        """Set the true totals of the limits that are named, now and at every level, and end the
        lease: from now on the charge stands, whatever happens in the block."""
        run(flows.commit(self._record, actual))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(flows.end_lease(self._record, failed=kind is not None))


async def _take_back(record: LeaseRecord) -> None:
    """Undo a charge whose block has not begun."""
    with suppress(LeaseExpiredError):
        await flows.give_back(record)


class _AcquisitionBase:
    """A checked request that has not been entered yet."""

    __slots__ = ("_is_entered", "_record", "_request", "_scope", "_terms", "_was_entered")
    _record: LeaseRecord
    _statement: str

    def __init__(self, scope: Scope, request: Request, terms: LeaseTerms) -> None:
        self._scope = scope
        self._request = request
        self._terms = terms
        self._is_entered = False
        self._was_entered = False

    def __repr__(self) -> str:
        request = self._request
        return f"<{type(self).__name__} {request.entity_id!r}, {request.resource!r}>"

    def __del__(self) -> None:
        # An interrupt may have come before the attribute was set.
        if not getattr(self, "_was_entered", True):
            message = f"{self!r} was never entered: write `{self._statement}`"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def _enter(self) -> Coroutine[Any, Any, LeaseRecord]:
        """Open the lease. Without the check, a second entry would lose the first one's charge."""
        if self._is_entered:
            reason = "is entered already; call acquire() for each block"
            raise ValidationError("acquisition", "acquire(...)", reason)
        self._is_entered = self._was_entered = True
        opening = flows.open_lease(self._scope, self._request, self._terms)
        if self._scope.local.listeners.all:
            return tell_listeners(self._scope, self._request, opening)
        return opening


class Acquisition(_AcquisitionBase):
    """An acquisition is the context manager of `async with limiter.acquire(...)`."""

    __slots__ = ()
    _statement = "async with limiter.acquire(...)"

    async def reserve(self) -> Lease:
        """Charge, and return a lease that its holder ends."""
        lease = await self.__aenter__()
        lease.is_reserved = True
        return lease

    async def __aenter__(self) -> Lease:
        opening = self._enter()
        try:
            self._record = await drive(opening, _take_back)
        except BaseException:
            self._is_entered = False
            raise
        return Lease(self._record)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_entered = False
        if kind is None and flows.ends_quietly(self._record):
            return
        await drive(flows.end_lease(self._record, failed=kind is not None))


class SyncAcquisition(_AcquisitionBase):
    """An acquisition is the context manager of `with limiter.acquire(...)`."""

    __slots__ = ()
    _statement = "with limiter.acquire(...)"

    def reserve(self) -> SyncLease:
        """Charge, and return a lease that its holder ends."""
        lease = self.__enter__()
        lease.is_reserved = True
        return lease

    def __enter__(self) -> SyncLease:
        record, opening = None, self._enter()
        try:
            record = run(opening)
            self._record = record
            return SyncLease(record)
        except BaseException:
            # Without this, an interrupt between the charge and the block would keep the tokens.
            self._is_entered = False
            if record is not None:
                run(_take_back(record))
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_entered = False
        if kind is None and flows.ends_quietly(self._record):
            return
        run(flows.end_lease(self._record, failed=kind is not None))
