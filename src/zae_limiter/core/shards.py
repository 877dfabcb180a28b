"""Shards divide a bucket's capacity and tokens exactly.

Shard *i* of *n* splits into *i* and *i + n* of *2n*. The lower sibling keeps the odd
millitoken, so the parts always sum to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MAX_SHARDS = 32


def halve(amount_milli: int) -> tuple[int, int]:
    """Return the lower and the upper sibling's part, of a debt, too."""
    upper = amount_milli // 2
    return amount_milli - upper, upper


def share(capacity_milli: int, shard: int, shard_count: int) -> int:
    """Return the part of the capacity that belongs to a shard."""
    assert 0 <= shard < shard_count <= MAX_SHARDS
    part = capacity_milli
    count = 1
    while count < shard_count:
        part = halve(part)[(shard // count) % 2]
        count *= 2
    return part


def sibling(shard: int, shard_count: int) -> int:
    """Return the shard that a split creates."""
    assert 0 <= shard < shard_count < MAX_SHARDS
    return shard + shard_count


def owner(shard: int, counts: Mapping[int, int]) -> int | None:
    """Return the item that holds a shard's part; None when that part is missing.

    `counts`: the shard count of each item. Item *i* of *n* stands for all shards that are *i*
    modulo *n*.
    """
    return next((i for i, count in counts.items() if shard % count == i), None)


def free_count(shard: int, counts: Mapping[int, int]) -> int:
    """Return the count of a missing shard: the largest part that overlaps none of the items."""
    assert owner(shard, counts) is None
    count = 1 << shard.bit_length()
    while any((shard - i) % min(count, n) == 0 for i, n in counts.items()):
        count *= 2
    return count


def sums_to_one(shard_counts: Iterable[int]) -> bool:
    """Return whether the parts of items with these counts sum to one whole bucket."""
    return sum(MAX_SHARDS // count for count in shard_counts) == MAX_SHARDS
