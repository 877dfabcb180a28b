"""A ledger records what a lease took, and from which addresses.

Corrections and refunds are computed from these records, at the recorded addresses, and from nothing
else. So a refund cannot reach a bucket that was not charged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .bucket import BucketAddress
from .limit import MILLI
from .planner import Intent


@dataclass(slots=True)
class Entry:
    """An entry is a charge of one bucket item.

    `limit_names`: the limits of the item at its first charge. `later_names`: its limits at further
    charges. `intents`: the intents of these charges, to make the item anew if it has gone.
    """

    address: BucketAddress
    limit_names: frozenset[str]
    charged_milli: dict[str, int]
    acquires: int = 1
    later_names: frozenset[str] = frozenset()
    intents: tuple[Intent, ...] = ()

    def absorb(self, further: Entry) -> None:
        """Add a further charge of the bucket item, which may carry other limits by now."""
        self.later_names |= further.limit_names
        if further.limit_names != self.limit_names:
            self.intents += further.intents
        _add(self.charged_milli, further.charged_milli)
        self.acquires += further.acquires


@dataclass(slots=True)
class Ledger:
    """A ledger holds the charges of a lease, and the corrections that are still to be written."""

    entries: list[Entry] = field(default_factory=list)
    pending_milli: dict[str, int] = field(default_factory=dict)

    def absorb(self, further: Ledger) -> None:
        """Add the entries of a further charge, at addresses old and new."""
        held = {entry.address: entry for entry in self.entries}
        for entry in further.entries:
            if entry.address in held:
                held[entry.address].absorb(entry)
            else:
                self.entries.append(entry)

    def correct(self, deltas: Mapping[str, int]) -> None:
        """Remember a signed correction, in whole tokens, to be written when the lease ends."""
        _add(self.pending_milli, {name: delta * MILLI for name, delta in deltas.items()})

    def set_totals(self, actual: Mapping[str, int]) -> None:
        """Correct the named limits so that the lease holds these whole tokens of each."""
        self.correct({name: amount - self.held(name) for name, amount in actual.items()})

    def held(self, name: str) -> int:
        """Whole tokens of a limit that the entity's own bucket was charged, corrections included:
        the most that the lease may still give back."""
        home = self.entries[0].address.home
        own = (entry for entry in self.entries if entry.address.home == home)
        charged_milli = sum(entry.charged_milli.get(name, 0) for entry in own)
        return (charged_milli + self.pending_milli.get(name, 0)) // MILLI

    def corrections(self) -> Iterator[tuple[BucketAddress, dict[str, int]]]:
        """Yield the corrections to write, address by address."""
        if len(self.entries) == 1 and self.pending_milli.keys() <= self.entries[0].limit_names:
            due_milli = {name: delta for name, delta in self.pending_milli.items() if delta}
            if due_milli:
                yield self.entries[0].address, due_milli
            return
        for entries in self.buckets():
            rest_milli = self._due_milli(entries)
            for entry in entries[1:]:
                deltas_milli = _returned_here(entry, rest_milli)
                if deltas_milli:
                    yield entry.address, deltas_milli
            rest_milli = {name: delta for name, delta in rest_milli.items() if delta}
            if rest_milli:
                yield entries[0].address, rest_milli

    def _due_milli(self, entries: Sequence[Entry]) -> dict[str, int]:
        """Return the corrections that concern a bucket. A bucket gets no more back than was taken
        from it: it may have come to have a limit only after its first charge."""
        names = _names(entries)
        due_milli = {}
        for name, delta_milli in self.pending_milli.items():
            if name in names:
                taken_milli = sum(entry.charged_milli.get(name, 0) for entry in entries)
                due_milli[name] = max(delta_milli, -taken_milli)
        return due_milli

    def buckets(self) -> Iterable[list[Entry]]:
        """Return the entries of each bucket; several where several of its shards were charged."""
        grouped: dict[BucketAddress, list[Entry]] = {}
        for entry in self.entries:
            grouped.setdefault(entry.address.home, []).append(entry)
        return grouped.values()

    def refunds(self) -> Iterator[tuple[BucketAddress, dict[str, int], int]]:
        """Yield the refunds to write, address by address, with the acquires to take back."""
        for entry in self.entries:
            deltas_milli = {name: -taken for name, taken in entry.charged_milli.items() if taken}
            if deltas_milli or entry.acquires:
                yield entry.address, deltas_milli, -entry.acquires

    @property
    def consumed(self) -> dict[str, int]:
        """The whole tokens that all buckets gave, by limit name, corrections included."""
        total: dict[str, int] = {}
        for entries in self.buckets():
            for entry in entries:
                _add(total, entry.charged_milli)
            _add(total, self._due_milli(entries))
        return {name: amount_milli // MILLI for name, amount_milli in total.items()}


def _names(entries: Iterable[Entry]) -> frozenset[str]:
    """Return the limits that any item of a bucket has carried."""
    return frozenset().union(*(entry.limit_names | entry.later_names for entry in entries))


def _returned_here(entry: Entry, rest_milli: dict[str, int]) -> dict[str, int]:
    """Give back at a shard no more than was taken there; the rest stays to be written."""
    deltas_milli = {}
    for name, delta in rest_milli.items():
        here_milli = -min(-delta, entry.charged_milli.get(name, 0)) if delta < 0 else 0
        if here_milli:
            deltas_milli[name] = here_milli
            rest_milli[name] = delta - here_milli
    return deltas_milli


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
