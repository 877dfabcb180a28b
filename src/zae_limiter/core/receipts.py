"""A receipt is the record of one charge that other processes can find.

    open      charged; each holder may end the lease
    settled   committed: the charge stands
    returned  given back: the receipt tells nothing any more

A store keeps receipts by compare-and-set on their revision. The functions here say which receipt
may follow which, so that a lease is ended once, whichever processes hold it.

A charge whose key is used again has several holders. Each of them may commit the charge, and the
last of them that leaves gives it back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from .bucket import BucketAddress
from .exceptions import ValidationError
from .idempotency import Landing
from .ledger import Entry, Ledger
from .limit import LimitSet
from .planner import Intent
from .validation import validate_idempotency_key

# Longer than any write takes from planning to landing.
_OUTLASTS_MS = 60_000
# A record must not grow with every repeat. The last holder is shared by all that come later.
_MAX_HOLDERS = 16
_SHARED = "+"
# A lost answer is asked after soon. Where more charges than these were added since, it stays lost.
_REMEMBERED_CHARGES = 8
_DAY_MS = 86_400_000
_MAX_TTL_S = 86_400 * 366


class ReceiptTerms(NamedTuple):
    """The terms of a receipt: the key that it is kept for, if any, for how long the key is
    remembered, and for how long the lease can be ended."""

    idempotency_key: str | None
    expires_after_ms: int
    ends_after_ms: int


def receipt_terms(
    idempotency_key: str | None, idempotency_ttl: float | None, lease_ttl: float | None
) -> ReceiptTerms:
    """Check the terms that a caller asks for. A key is remembered for a day unless the caller says
    otherwise, and never for less time than its lease can be ended in."""
    remembered_ms = _milliseconds("idempotency_ttl", idempotency_ttl)
    ends_after_ms = _milliseconds("lease_ttl", lease_ttl)
    if idempotency_key is None:
        if remembered_ms:
            reason = "needs an idempotency_key that it is for"
            raise ValidationError("idempotency_ttl", idempotency_ttl, reason)
        return ReceiptTerms(None, ends_after_ms, ends_after_ms)
    validate_idempotency_key(idempotency_key)
    if 0 < remembered_ms < ends_after_ms:
        reason = "must not be less than lease_ttl"
        raise ValidationError("idempotency_ttl", idempotency_ttl, reason)
    expires_after_ms = remembered_ms or max(_DAY_MS, ends_after_ms)
    return ReceiptTerms(idempotency_key, expires_after_ms, ends_after_ms or expires_after_ms)


def _milliseconds(field: str, seconds: float | None) -> int:
    """Return a checked number of seconds as milliseconds, 0 for None."""
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValidationError(field, seconds, "must be a number of seconds or None")
    if not 0 < seconds <= _MAX_TTL_S:
        raise ValidationError(field, seconds, "must be more than 0 and at most a year of seconds")
    return math.ceil(seconds * 1000)


class ReceiptKey(NamedTuple):
    """A receipt key is the name of a receipt in its namespace."""

    namespace_id: str
    name: str


class ReceiptState(Enum):
    """A receipt is open until its lease is ended, in one of two ways."""

    OPEN = "open"
    SETTLED = "settled"
    RETURNED = "returned"


class ReceiptEntry(NamedTuple):
    """A receipt entry says what one bucket item was charged, and how the item was stamped then."""

    address: BucketAddress
    charged_milli: Mapping[str, int]
    acquires: int
    intents: tuple[Intent, ...]


class Receipt(NamedTuple):
    """A receipt says what was asked for, what was charged, and who may still end the lease.

    `revision` differs in every stored version, and `charges` are those that came with a charge.
    `expires_at_ms`: the key is remembered until then. `ends_by_ms`: the lease can be ended until
    then. `holders`: those who may end the lease. `ended_by`: the lease object that ended it.
    `has_own_limits`: the first call brought limits of its own.
    """

    key: ReceiptKey
    revision: str
    lease_id: str
    entity_id: str
    resource: str
    wanted_milli: Mapping[str, int]
    entries: tuple[ReceiptEntry, ...]
    charges: tuple[str, ...]
    expires_at_ms: int
    ends_by_ms: int
    holders: frozenset[str]
    state: ReceiptState = ReceiptState.OPEN
    ended_by: str = ""
    has_own_limits: bool = False

    @property
    def drops_at_ms(self) -> int:
        """From when a store may drop the receipt: until then, no copy of a swap lands late."""
        return self.expires_at_ms + _OUTLASTS_MS

    @property
    def limits(self) -> LimitSet:
        """The limits under which the entity's own bucket was charged last."""
        return self.entries[0].intents[-1].limits

    @property
    def own_limits(self) -> LimitSet | None:
        """The limits that the first call brought. Further charges are made under them, wherever
        they are made: stored limits would take away what the bucket holds beyond them."""
        return self.entries[0].intents[0].limits if self.has_own_limits else None

    def is_in_force(self, now_ms: int) -> bool:
        """Return whether the key has been charged for: a repeat is not charged again."""
        return self.state is not ReceiptState.RETURNED and now_ms < self.expires_at_ms

    def is_endable(self, now_ms: int) -> bool:
        """Return whether a holder may still end the lease."""
        return self.state is ReceiptState.OPEN and now_ms < self.ends_by_ms

    def difference(
        self, entity_id: str, resource: str, wanted_milli: Mapping[str, int]
    ) -> str | None:
        """Return the parameter in which another request differs, if one does."""
        if entity_id != self.entity_id:
            return "entity_id"
        if resource != self.resource:
            return "resource"
        is_same = _without_zeros(wanted_milli) == _without_zeros(self.wanted_milli)
        return None if is_same else "consume"


class ReceiptSwap(NamedTuple):
    """A swap keeps `after` if the stored receipt is still `before`; None is no receipt."""

    before: Receipt | None
    after: Receipt

    def is_stale(self, stored: Receipt | None) -> bool:
        """Return whether the stored receipt is another one than was seen."""
        seen = None if self.before is None else self.before.revision
        return seen != (None if stored is None else stored.revision)

    def landing(self, stored: Receipt | None) -> Landing:
        """Tell by the stored receipt whether this swap, which charges, has landed. A first charge
        has where its lease is stored. Further charges are remembered for a while: the memory does
        not tell once it holds nothing that was there before."""
        before, after = self
        if stored is None or stored.lease_id != after.lease_id or not stored.entries:
            return Landing.LOST
        is_first = before is None or before.lease_id != after.lease_id or not before.entries
        if is_first or after.revision in stored.charges:
            return Landing.LANDED
        assert before is not None
        is_forgotten = len(stored.charges) >= _REMEMBERED_CHARGES
        is_forgotten = is_forgotten and set(stored.charges).isdisjoint(before.charges)
        return Landing.UNKNOWN if is_forgotten else Landing.LOST


@dataclass(frozen=True, slots=True)
class StaleReceipt:
    """Another receipt is stored than the swap was planned on; nothing was changed."""

    receipt: Receipt | None


@dataclass(slots=True)
class HeldReceipt:
    """A held receipt is a receipt as one lease object sees it.

    `receipt`: as it was last seen. `holder`: the holder that the lease object ends it for; empty
    where nothing can be ended. `ender`: an id of the lease object. `is_repeat`: the key had been
    charged before.
    """

    receipt: Receipt
    holder: str
    ender: str
    is_repeat: bool = False

    @property
    def is_moot(self) -> bool:
        """Whether the charge had been committed when its key was used again."""
        return not self.holder and self.receipt.state is ReceiptState.SETTLED


def _without_zeros(amounts_milli: Mapping[str, int]) -> dict[str, int]:
    return {name: amount_milli for name, amount_milli in amounts_milli.items() if amount_milli}


def _receipt_entries(entries: Iterable[Entry]) -> tuple[ReceiptEntry, ...]:
    """Return the entries of a ledger as a receipt keeps them."""
    return tuple(
        ReceiptEntry(
            entry.address,
            dict(entry.charged_milli),
            entry.acquires,
            tuple(intent._replace(takes_milli={}, acquires=0) for intent in entry.intents),
        )
        for entry in entries
    )


def ledger_entries(receipt: Receipt) -> list[Entry]:
    """Return the entries of a receipt as a ledger keeps them."""
    return [_ledger_entry(entry) for entry in receipt.entries]


def _ledger_entry(entry: ReceiptEntry) -> Entry:
    first, *later = [intent.limits.names for intent in entry.intents]
    return Entry(
        entry.address,
        first,
        dict(entry.charged_milli),
        entry.acquires,
        frozenset().union(*later),
        entry.intents,
    )


def is_shared(holder: str) -> bool:
    """Return whether several callers are one holder."""
    return holder.endswith(_SHARED)


def next_holder(receipt: Receipt, new: str) -> str:
    """Return the holder that one more caller becomes: a new one, unless there are very many."""
    shared = list(filter(is_shared, receipt.holders))
    if shared:
        return shared[0]
    return new + _SHARED if len(receipt.holders) >= _MAX_HOLDERS - 1 else new


def joined(receipt: Receipt, holder: str, revision: str) -> Receipt:
    """Return the receipt with one more holder."""
    return receipt._replace(revision=revision, holders=receipt.holders | {holder})


def charged(receipt: Receipt, entries: Iterable[Entry], revision: str) -> Receipt:
    """Return the receipt with the entries of one more charge."""
    charges = (*receipt.charges, revision)[-_REMEMBERED_CHARGES:]
    ledger = Ledger(ledger_entries(receipt))
    ledger.absorb(Ledger(list(entries)))
    kept = _receipt_entries(ledger.entries)
    return receipt._replace(revision=revision, entries=kept, charges=charges)


def settled(receipt: Receipt, holder: str, ender: str, revision: str) -> Receipt:
    """Return the receipt of a charge that one of its holders has committed."""
    return _ended(receipt, holder, ender, ReceiptState.SETTLED, revision)


def released(receipt: Receipt, holder: str, ender: str, revision: str) -> Receipt:
    """Return the receipt without a holder; with the last of them, the charge is given back."""
    if receipt.holders == {holder} and not is_shared(holder):
        return _ended(receipt, holder, ender, ReceiptState.RETURNED, revision)
    return receipt._replace(revision=revision, holders=_without(receipt, holder))


def _ended(
    receipt: Receipt, holder: str, ender: str, state: ReceiptState, revision: str
) -> Receipt:
    holders = _without(receipt, holder)
    return receipt._replace(revision=revision, state=state, ended_by=ender, holders=holders)


def _without(receipt: Receipt, holder: str) -> frozenset[str]:
    """Return the holders without one of them. A holder that several callers share stays: nobody
    knows how many of them are left."""
    return receipt.holders if is_shared(holder) else receipt.holders - {holder}


def fencing(stored: Receipt | None, lost: Receipt, revision: str) -> Receipt:
    """Return the receipt that keeps a lost swap from landing late: the stored one at another
    revision, or one that tells nothing."""
    if stored is not None:
        return stored._replace(revision=revision)
    return lost._replace(
        revision=revision,
        entries=(),
        charges=(),
        holders=frozenset(),
        state=ReceiptState.RETURNED,
    )
