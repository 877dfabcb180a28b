"""Splitting an amount among the items of a bucket, none of which has enough alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...core.bucket import BucketAddress

Balances = Mapping[BucketAddress, Mapping[str, int]]
"""The millitokens of each limit that each item can give."""
Parts = dict[BucketAddress, dict[str, int]]


def split_amount(held_milli: Balances, takes_milli: Mapping[str, int], reserve_pct: int) -> Parts:
    """Decide which item gives how much of each limit.

    Few items give, the fullest. But if there are others who can give, too, all together keep
    a reserve: they are written meanwhile, and one that has too little spoils it for all.
    """
    parts: Parts = {}
    for name, amount_milli in takes_milli.items():
        balances = {address: held_milli[address][name] for address in held_milli}
        givers = _givers(balances, amount_milli, reserve_pct)
        for address, part_milli in _spread(givers, amount_milli):
            parts.setdefault(address, {})[name] = part_milli
    return parts


def suffices(held_milli: Balances, takes_milli: Mapping[str, int], reserve_pct: int) -> bool:
    """True when the items hold all of this and a reserve."""
    return all(
        _is_enough(sum(held[name] for held in held_milli.values()), amount_milli, reserve_pct)
        for name, amount_milli in takes_milli.items()
    )


def _is_enough(total_milli: int, amount_milli: int, reserve_pct: int) -> bool:
    return total_milli * (100 - reserve_pct) >= amount_milli * 100


def _givers(
    balances_milli: Mapping[BucketAddress, int], amount_milli: int, reserve_pct: int
) -> dict[BucketAddress, int]:
    chosen: dict[BucketAddress, int] = {}
    for address in sorted(balances_milli, key=lambda a: -balances_milli[a]):
        is_enough = _is_enough(sum(chosen.values()), amount_milli, reserve_pct)
        if is_enough or balances_milli[address] <= 0:
            break
        chosen[address] = balances_milli[address]
    return chosen


def _spread(
    givers_milli: Mapping[BucketAddress, int], amount_milli: int
) -> Iterator[tuple[BucketAddress, int]]:
    """Let each item give in proportion to its balance, rounded so that the parts sum up."""
    left_milli, held_milli = amount_milli, sum(givers_milli.values())
    for address, balance_milli in givers_milli.items():
        part_milli = -(-left_milli * balance_milli // held_milli)
        left_milli -= part_milli
        held_milli -= balance_milli
        if part_milli:
            yield address, part_milli
