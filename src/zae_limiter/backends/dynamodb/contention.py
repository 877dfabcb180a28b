"""Optimistic locks on records that several clients change, and deletions in many steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ...core.exceptions import StorageUnavailable, StoredDataError
from .table import Action, Table
from .wire.errors import RequestInvalid, TransactionCanceled, WireError, reasons
from .wire.retry import Backoff, delays

T = TypeVar("T")

# Each round has a winner, so as many rivals as there are retries all succeed.
_ROUNDS = Backoff(retries=20, base_s=0.005, ceiling_s=0.25, total_s=3.0)
_LOST = {"ConditionalCheckFailed", "TransactionConflict"}


async def race(table: Table, record: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
    """Repeat an attempt that lost, with backoff. None is a lost attempt."""
    waits_s = delays(_ROUNDS, table.io.entropy)
    while True:
        try:
            result = await attempt()
        except RequestInvalid as error:
            # Text where a number is added to, in the record or in a count that changes with it.
            reason = f"it is damaged, or a record that changes with it is ({error})"
            raise StoredDataError(record, reason) from error
        if result is not None:
            return result
        wait_s = next(waits_s, None)
        if wait_s is None:
            raise StorageUnavailable(f"{record} is kept busy by other writers")
        await table.io.pause(wait_s)


async def won(table: Table, actions: Sequence[Action]) -> bool:
    """Carry out all actions; False, and none is carried out, when a record was stale."""
    try:
        await table.transact(actions)
    except TransactionCanceled as canceled:
        if {reason.code for reason in canceled.reasons} - {"None"} <= _LOST:
            return False
        raise
    except StorageUnavailable as error:
        if _met_another(error):
            return False
        raise
    return True


def _met_another(error: StorageUnavailable) -> bool:
    """Return whether a transaction was given up because other clients kept its records busy."""
    if error.ambiguous or not isinstance(error.cause, WireError):
        return False
    return any(r.code == "TransactionConflict" for r in reasons(error.cause.answer))


@contextmanager
def halfway(what: str) -> Iterator[None]:
    """Mark a failure as ambiguous: it leaves some of many steps done."""
    try:
        yield
    except StorageUnavailable as error:
        raise StorageUnavailable(
            f"{what} was not finished, call it again: {error}",
            error,
            retryable=error.retryable,
            ambiguous=True,
        ) from error
