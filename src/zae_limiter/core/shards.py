"""Shards divide a bucket's capacity and tokens exactly.

Shard *i* of *n* splits into *i* and *i + n* of *2n*. The lower sibling keeps the odd
millitoken, so the parts always sum to the whole.

Item 0 says which generation of items is in force: all items of a bucket that was split carry
the generation of that split. Items of other generations are remnants and hold nothing.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MAX_SHARDS = 32
_DIGITS = string.ascii_letters + string.digits + "_."
# The generation of an item whose part has been merged into another item.
RETIRED = "-"


class Part(NamedTuple):
    """The part of a bucket that an item says it holds: one shard of so many, in a generation."""

    shard_count: int
    generation: str


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


def in_force(parts: Mapping[int, Part]) -> dict[int, int]:
    """Return the shard counts of the items that are in force, by shard.

    The items must have the generation of item 0 or, where item 0 is lost, the generation that
    holds most of the bucket. An item whose part a lower shard covers is not in force: of two
    items that overlap, the lower one always covers the higher one.
    """
    generation = parts[0].generation if 0 in parts else _largest_generation(parts)
    counts: dict[int, int] = {}
    for shard in sorted(parts):
        count, found = parts[shard]
        if found == generation and owner(shard, counts) is None:
            counts[shard] = count
    return counts


def new_generation(entropy: int) -> str:
    """Return the name of a generation: 30 random bits, in as few characters as that takes, because
    an item of six limits has to stay within a kilobyte."""
    return "".join(_DIGITS[entropy >> 6 * place & 63] for place in range(5))


def _largest_generation(parts: Mapping[int, Part]) -> str:
    held: dict[str, int] = {}
    for count, generation in parts.values():
        if generation != RETIRED:
            held[generation] = held.get(generation, 0) + MAX_SHARDS // count
    return max(held, key=lambda generation: (held[generation], generation), default=RETIRED)


def holes(counts: Mapping[int, int]) -> dict[int, int]:
    """Return the parts that are missing beside the items with these counts, by shard."""
    known = dict(counts)
    missing = {}
    for shard in range(MAX_SHARDS):
        if owner(shard, known) is None:
            known[shard] = missing[shard] = free_count(shard, known)
    return missing


def sums_to_one(shard_counts: Iterable[int]) -> bool:
    """Return whether the parts of items with these counts sum to one whole bucket."""
    return sum(MAX_SHARDS // count for count in shard_counts) == MAX_SHARDS
