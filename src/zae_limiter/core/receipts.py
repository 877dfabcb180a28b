"""A receipt is the record of one charge that other processes can find.

    open      charged; each holder may end the lease
    settled   committed: the charge stands
    returned  given back: the receipt tells nothing any more

A store keeps receipts by compare-and-set on their revision. The functions here say which receipt
may follow which, so that a lease is ended once, whichever processes hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from .bucket import BucketAddress
from .planner import Intent

# Longer than any write takes from planning to landing.
_OUTLASTS_MS = 60_000


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

    @property
    def drops_at_ms(self) -> int:
        """From when a store may drop the receipt: until then, no copy of a swap lands late."""
        return self.expires_at_ms + _OUTLASTS_MS


class ReceiptSwap(NamedTuple):
    """A swap keeps `after` if the stored receipt is still `before`; None is no receipt."""

    before: Receipt | None
    after: Receipt

    def is_stale(self, stored: Receipt | None) -> bool:
        """Return whether the stored receipt is another one than was seen."""
        seen = None if self.before is None else self.before.revision
        return seen != (None if stored is None else stored.revision)


@dataclass(frozen=True, slots=True)
class StaleReceipt:
    """Another receipt is stored than the swap was planned on; nothing was changed."""

    receipt: Receipt | None


def joined(receipt: Receipt, holder: str, revision: str) -> Receipt:
    """Return the receipt with one more holder."""
    return receipt._replace(revision=revision, holders=receipt.holders | {holder})


def ended(receipt: Receipt, ender: str, state: ReceiptState, revision: str) -> Receipt:
    """Return the receipt of a lease that has ended."""
    return receipt._replace(revision=revision, state=state, ended_by=ender)
