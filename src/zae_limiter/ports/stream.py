"""This module is the port to a store's stream of changes, and to the checkpoints of its readers.

A stream consists of shards. Each is a list of records in order; a shard that has ended has
children, and the changes of an item go on in one of those. A store's stream may be switched off and
on again: then its shards come after all shards that were there before. So a reader that reads each
shard in order, and after those that it follows, sees the changes of each item in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ..core.changes import ChangeBatch


class IteratorExpired(Exception):
    """An iterator can be used no more: a new one has to be asked for."""


class StreamShard(NamedTuple):
    """A stream shard, the shards whose records come before its own, and its last record if it is
    known to get no more."""

    shard_id: str
    after: frozenset[str] = frozenset()
    last_id: str | None = None


class StreamPage(NamedTuple):
    """A stream page is what one read of a shard found.

    `records` counts all records, also those that tell nothing. `last_id` and `last_ms` are id and
    time of the last one; None when there was none. `following` is the iterator of the next page;
    None when the shard has ended. `is_full`: it has as much as a page holds, so more may wait.
    """

    batch: ChangeBatch
    records: int
    last_id: str | None
    last_ms: int | None
    following: str | None
    is_full: bool = False


class ChangeStream(Protocol):
    """The role of a stream of changes."""

    async def shards(self) -> Sequence[StreamShard]:
        """Return all shards that the stream still keeps."""

    async def begin(self, shard_id: str, after_id: str | None) -> str | None:
        """Return an iterator that starts after a record, or at the oldest record that is kept. A
        record that is kept no more counts as none. None when the whole shard is kept no more."""

    async def read(self, shard_id: str, iterator: str) -> StreamPage:
        """Return the next page of a shard. Raises `IteratorExpired`."""


class Checkpoint(NamedTuple):
    """A checkpoint says how far a shard has been read, and which reader has the lease of it.

    Every record up to `record_id` has been dealt with. `owner` reads the shard until
    `lease_ends_ms`; after that any reader may. A lease only saves work: two readers of the
    same records change nothing twice. `wanted_by` names a reader that has asked for the shard.
    """

    record_id: str | None = None
    owner: str = ""
    lease_ends_ms: int = 0
    wanted_by: str = ""


class Checkpoints(Protocol):
    """The role of the checkpoints of a stream, one for each shard."""

    async def read(self, shard_id: str) -> Checkpoint:
        """Return the checkpoint as of the last write; an empty one when there is none."""

    async def lease(self, shard_id: str, owner: str, until_ms: int) -> Checkpoint:
        """Make `owner` the owner until then, unless another reader's lease has not ended yet.
        Return the checkpoint as it is afterwards; a new owner's is wanted by nobody."""

    async def save(self, shard_id: str, checkpoint: Checkpoint) -> Checkpoint | None:
        """Replace record and end of the lease, if the owner has not changed. Return the checkpoint
        as it is afterwards, and None if it was not replaced. A checkpoint that named a record which
        its shard does not have goes back: refused, its shard would be read from the oldest record
        on again and again."""

    async def read_all(self) -> Mapping[str, Checkpoint]:
        """Return all checkpoints by shard."""

    async def ask(self, shard_id: str, owner: str, asking: str) -> None:
        """Let a reader ask an owner for the shard, unless it is asked for or no longer has it."""


@runtime_checkable
class StreamedStore(Protocol):
    """An optional role: a store whose usage is counted by a reader of its stream."""

    async def has_reader(self) -> bool:
        """Whether anything shows that a reader is or was at work: a checkpoint, or a Lambda."""
