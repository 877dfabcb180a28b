"""The shards of a simulated stream: which records may be delivered when.

A stream shard has the changes of some bucket items, in order. One that is closed is followed by
two children, which share its items and are read when it has been read to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from zlib import crc32

from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.changes import BucketChange

_END = 1 << 30


@dataclass(frozen=True)
class StreamShard:
    """The changes from `first` on and before `end`, of the items whose hash ends in `suffix`."""

    bits: int
    suffix: int
    first: int = 0
    end: int = _END
    parent: StreamShard | None = None

    def records(self, stream: Sequence[BucketChange]) -> list[BucketChange]:
        return [change for change in stream[self.first : self.end] if self._has(change.address)]

    def _has(self, address: BucketAddress) -> bool:
        return crc32(repr(address).encode()) % (1 << self.bits) == self.suffix


def draw_shards(rng: Random) -> list[StreamShard]:
    """Cover all items by shards, of which some are closed after a few records of the stream."""
    bits = rng.randint(0, 2)
    shards = [StreamShard(bits, suffix) for suffix in range(1 << bits)]
    for _ in range(rng.randint(0, 3)):
        shards += _close(rng, shards)
    return shards


def _close(rng: Random, shards: list[StreamShard]) -> list[StreamShard]:
    place = rng.choice([i for i, shard in enumerate(shards) if shard.end == _END])
    opened = shards[place]
    end = opened.first + rng.randint(0, 30)
    closed = StreamShard(opened.bits, opened.suffix, opened.first, end, opened.parent)
    shards[place] = closed
    bits = closed.bits + 1
    halves = (closed.suffix, closed.suffix + (1 << closed.bits))
    return [StreamShard(bits, suffix, end, _END, closed) for suffix in halves]


class Positions:
    """How far each shard has been read: what all readers share, as a table of checkpoints."""

    def __init__(self, shards: Sequence[StreamShard], stream: Sequence[BucketChange]) -> None:
        self.shards = shards
        self._stream = stream
        self._done: dict[StreamShard, int] = {}
        self._found: dict[StreamShard, tuple[int, list[BucketChange]]] = {}

    def records(self, shard: StreamShard) -> list[BucketChange]:
        """The records that a shard has by now."""
        length, found = self._found.get(shard, (-1, []))
        if length != len(self._stream):
            found = shard.records(self._stream)
            self._found[shard] = len(self._stream), found
        return found

    def of(self, shard: StreamShard) -> int:
        return self._done.get(shard, 0)

    def advance(self, shard: StreamShard, position: int) -> None:
        """Note that all records before the position have been handled."""
        self._done[shard] = max(position, self.of(shard))

    def readable(self) -> list[StreamShard]:
        """The shards whose parents have been read to the end."""
        return [shard for shard in self.shards if self._is_read(shard.parent)]

    def _is_read(self, shard: StreamShard | None) -> bool:
        return shard is None or (
            len(self._stream) >= shard.end
            and self.of(shard) == len(self.records(shard))
            and self._is_read(shard.parent)
        )

    def is_behind(self) -> bool:
        """Whether there is a record that nobody has handled."""
        return any(self.of(shard) < len(self.records(shard)) for shard in self.shards)
