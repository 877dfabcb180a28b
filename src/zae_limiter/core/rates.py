"""Rates say how limits gain tokens. This is the only rate arithmetic in the package.

All numbers are integers, in millitokens and milliseconds. Each gain keeps the remainder of its
division, so that nothing is lost however often a limit is refilled:

    added, remainder' = divmod(elapsed * amount + remainder, period)

A kind of limit is a kind of gain: a type with the methods of `Rate`, and bounds of its numbers in
`core.validation`. Planner, judge and stores know nothing else of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from .shards import share


class Rate(NamedTuple):
    """The gain of one limit at one item: `amount_milli` in each period, up to the ceiling.

    A full limit has no remainder: what would be gained above the ceiling never existed.
    """

    ceiling_milli: int
    amount_milli: int
    period_ms: int

    def part(self, shard: int, shard_count: int) -> Rate:
        """Return the gain of one shard of the limit."""
        return _part(self, shard, shard_count)

    def refill(
        self, tokens_milli: int, remainder: int, since_ms: int, until_ms: int
    ) -> tuple[int, int]:
        """Return balance and remainder after the gain of this time."""
        ceiling_milli, amount_milli, period_ms = self
        added, rest = divmod((until_ms - since_ms) * amount_milli + remainder, period_ms)
        if tokens_milli + added < ceiling_milli:
            return tokens_milli + added, rest
        return ceiling_milli, 0

    def join(self, tokens_milli: int, remainders: int) -> tuple[int, int]:
        """Return balance and remainder of two siblings as one item with this rate. The remainders
        are added up in periods that are twice as long: half a unit may be lost, none is made."""
        return self.refill(tokens_milli, remainders // 2, 0, 0)

    def least_gain_milli(self, since_ms: int, until_ms: int) -> int:
        """Return the gain of this time if the remainder was zero: the least that it can be."""
        return (until_ms - since_ms) * self.amount_milli // self.period_ms

    def most_gain_milli(self, since_ms: int, until_ms: int) -> int:
        """Return the gain of this time if the remainder was a period less one: the most."""
        return -(-(until_ms - since_ms) * self.amount_milli // self.period_ms)

    def time_to_gain_ms(self, gain_milli: int, remainder: int = 0) -> int:
        """Return the first millisecond by which this much has been gained, the ceiling aside."""
        missing = gain_milli * self.period_ms - remainder
        return -(-missing // self.amount_milli) if missing > 0 else 0

    def roof_milli(self, since_ms: int, until_ms: int) -> int:
        """Return the most to hold at `since_ms` without being full at `until_ms`."""
        return self.ceiling_milli - self.most_gain_milli(since_ms, until_ms) - 1

    def floor_milli(self, since_ms: int, until_ms: int) -> int:
        """Return the least to hold at `since_ms` for being full at `until_ms`."""
        return self.ceiling_milli - self.least_gain_milli(since_ms, until_ms)


@lru_cache(maxsize=4096)
def _part(rate: Rate, shard: int, shard_count: int) -> Rate:
    # A longer period instead of a smaller amount: a division of the amount would lose its
    # remainder, and the parts would not sum to the whole.
    ceiling_milli = share(rate.ceiling_milli, shard, shard_count)
    return Rate(ceiling_milli, rate.amount_milli, rate.period_ms * shard_count)


# Buckets with the same limit share its rate, which is most of a cell.
rate_of = lru_cache(maxsize=4096)(Rate)


def rescale_remainder(remainder: int, old: Rate, new: Rate) -> int:
    """Return a remainder under another rate. A remainder is a part of a millitoken, in periods."""
    return remainder * new.period_ms // old.period_ms


def tokens_per_second(refill_amount: int, refill_period_seconds: int) -> float:
    """Return the speed of a refill, for people."""
    return refill_amount / refill_period_seconds


def seconds_to_fill(capacity: int, refill_amount: int, refill_period_seconds: int) -> float:
    """Return the time in which an empty bucket becomes full."""
    return capacity / tokens_per_second(refill_amount, refill_period_seconds)
