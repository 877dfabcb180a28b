"""What a lease took, and from which address.

A ledger never guesses: settling and refunding are computed from what it recorded, at the
addresses where it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .composite import BucketAddress
from .limit import MILLI


@dataclass(slots=True)
class Entry:
    """One bucket that was charged."""

    address: BucketAddress
    limit_names: frozenset[str]
    charged_milli: dict[str, int]
    acquires: int = 1


@dataclass(slots=True)
class Ledger:
    """All buckets one lease has charged, and the corrections it has been told of since."""

    entries: list[Entry] = field(default_factory=list)
    pending_milli: dict[str, int] = field(default_factory=dict)

    def absorb(self, further: Ledger) -> None:
        """Add what a further charge took, at addresses old and new."""
        held = {entry.address: entry for entry in self.entries}
        for entry in further.entries:
            if entry.address in held:
                _add(held[entry.address].charged_milli, entry.charged_milli)
            else:
                self.entries.append(entry)

    def correct(self, deltas: Mapping[str, int]) -> None:
        """Remember a signed correction, in whole tokens, to be written when the lease ends."""
        _add(self.pending_milli, {name: delta * MILLI for name, delta in deltas.items()})

    def corrections(self) -> Iterator[tuple[BucketAddress, dict[str, int]]]:
        """What has to be written at each address for the corrections to hold."""
        for entry in self.entries:
            deltas_milli = {
                name: delta
                for name, delta in self.pending_milli.items()
                if delta and name in entry.limit_names
            }
            if deltas_milli:
                yield entry.address, deltas_milli

    def refunds(self) -> Iterator[tuple[BucketAddress, dict[str, int], int]]:
        """What has to be given back at each address, and how many acquires with it."""
        for entry in self.entries:
            deltas_milli = {name: -taken for name, taken in entry.charged_milli.items() if taken}
            if deltas_milli or entry.acquires:
                yield entry.address, deltas_milli, -entry.acquires

    @property
    def consumed(self) -> dict[str, int]:
        """Whole tokens by limit name over all buckets, corrections included."""
        total: dict[str, int] = {}
        for entry in self.entries:
            _add(total, entry.charged_milli)
            _add(
                total,
                {n: d for n, d in self.pending_milli.items() if n in entry.limit_names},
            )
        return {name: amount_milli // MILLI for name, amount_milli in total.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
