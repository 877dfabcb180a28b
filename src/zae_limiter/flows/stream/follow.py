"""Following a stream of changes for as long as it goes on, beside other readers.

A shard is read after those that it follows on, and from its checkpoint on. Records that concern
this reader are dealt with under a lease of the shard, so that readers do not do each other's work.
A lease is asked for when there is something to do, and renewed by checkpoints, and a checkpoint is
written only after something was done: an idle table is not written to.

A reader that is killed leaves records dealt with and not in its checkpoint. The next reader deals
with them again, which changes nothing (`UsageAddition`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.exceptions import StorageUnavailable
from ...ports.io import Signal
from ...ports.stream import ChangeStream, Checkpoint, Checkpoints, IteratorExpired, StreamPage
from .batch import StreamWork, process_batch
from .progress import FollowProgress, ShardReading
from .sharing import shards_to_ask_for

logger = logging.getLogger("zae_limiter")

# How many shards are read at a time.
_AT_ONCE = 16
_DISCOVERY_MS = 30_000
_DISCOVERY_RETRY_MS = 1_000
_CHECKPOINT_MS = 5_000
_SHARING_MS = 10_000
# How often a reader looks for a shard that it has asked for, and how long one is left to it.
_ASKED_MS = 1_000
_HANDOVER_MS = 10_000
# A reader stops working this long before its lease ends: clocks may differ by two seconds.
_MARGIN_MS = 5_000
# Pages without a record that a reader sees at the end of a shard before it takes it for the end.
_EMPTY_PAGES = 10
_MAX_FAILURES = 10


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """The settings of a reader.

    `owner` names it among all readers. `once`: it ends when it has caught up, instead of waiting
    for more. `poll_s`: how often it looks for records.
    """

    owner: str
    once: bool = False
    poll_s: float = 1.0
    lease_ms: int = 30_000


class Follower:
    """A follower reads all shards of a stream, in rounds, until it is told to stop."""

    def __init__(
        self,
        work: StreamWork,
        stream: ChangeStream,
        checkpoints: Checkpoints,
        settings: FollowSettings,
    ) -> None:
        self.progress = FollowProgress()
        self._work = work
        self._io = work.scope.io
        self._stream = stream
        self._checkpoints = checkpoints
        self._settings = settings
        self._ended: set[str] = set()
        self._discovery_ms = 0
        self._failed_discoveries = 0
        self._sharing_ms = 0
        self._began_ms = self._io.now_ms()

    async def follow(self, stop: Signal, report: Callable[[FollowProgress], None]) -> None:
        """Read until `stop` is set, or the end is reached. What was dealt with is then saved, and
        leases are given back."""
        wait_s = 0.0
        while not await stop.wait(wait_s):
            await self._discover()
            await self._share()
            await self._together([self._step(each) for each in self._due()])
            report(self.progress)
            if self._settings.once and self._has_caught_up():
                break
            wait_s = self._pause_s()
        await self._together([self._release(each) for each in self._readings()])
        report(self.progress)

    def _readings(self) -> list[ShardReading]:
        return list(self.progress.shards.values())

    def _due(self) -> list[ShardReading]:
        now_ms = self._io.now_ms()
        return [each for each in self._readings() if each.idle_until_ms <= now_ms]

    def _pause_s(self) -> float:
        """Records that wait are read at once; records yet to come in batches, which costs less."""
        if not self._discovery_ms:
            return 0.0
        return min(
            (each.pause_s if each.iterator else 0.0 for each in self._due() if not each.failures),
            default=self._settings.poll_s,
        )

    def _has_caught_up(self) -> bool:
        """Shards that a living reader has the lease of are its own to catch up with. The lease of a
        reader that was killed is over after a while."""
        # Taken for a stream without shards, one that cannot be listed would end with success.
        is_all_known = self._discovery_ms > 0 and not self._failed_discoveries
        return is_all_known and all(
            each.is_left or (each.empty_pages >= _EMPTY_PAGES and not _is_short(each))
            for each in self._readings()
        )

    async def _discover(self) -> None:
        """Find shards that follow on none, or only on shards that have been read or are kept no
        more."""
        now_ms = self._io.now_ms()
        if now_ms < self._discovery_ms:
            return
        self._discovery_ms = now_ms + _DISCOVERY_MS
        try:
            shards = await self._stream.shards()
        except StorageUnavailable as error:
            self._discovery_ms = now_ms + _DISCOVERY_RETRY_MS
            self._failed_discoveries += 1
            self._fail("The stream cannot be read", error)
            if self._settings.once and self._failed_discoveries >= _MAX_FAILURES:
                raise
            return
        self._failed_discoveries = 0
        kept = {shard.shard_id for shard in shards}
        self._ended &= kept
        waiting = kept - self._ended
        for shard_id, after, last_id in shards:
            if shard_id in waiting and not after & waiting:
                reading = self.progress.shards.setdefault(shard_id, ShardReading(shard_id))
                reading.last_id = last_id
        if not self.progress.shards:
            # The stream is switched off, and may be switched on again.
            self._discovery_ms = now_ms + _DISCOVERY_RETRY_MS

    async def _share(self) -> None:
        """Ask other readers for shards if they have more than this one. A reader that runs once
        leaves them to those that stay."""
        now_ms = self._io.now_ms()
        is_alone = all(each.idle_until_ms <= now_ms for each in self._readings())
        if self._settings.once or is_alone or now_ms < self._sharing_ms:
            return
        self._sharing_ms = now_ms + _SHARING_MS
        owner = self._settings.owner
        try:
            known = await self._checkpoints.read_all()
            for shard_id in shards_to_ask_for(owner, known, now_ms):
                if shard_id in self.progress.shards:
                    await self._checkpoints.ask(shard_id, known[shard_id].owner, owner)
                    self.progress.shards[shard_id].idle_until_ms = 0
        except StorageUnavailable as error:
            self._fail("Shards cannot be shared out", error)

    async def _together(self, steps: Sequence[Coroutine[Any, Any, None]]) -> None:
        for first in range(0, len(steps), _AT_ONCE):
            for outcome in await self._io.gather(steps[first : first + _AT_ONCE]):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _step(self, reading: ShardReading) -> None:
        """Read a page of a shard, and deal with it. After a failure the page is read again."""
        try:
            await self._read_on(reading)
        except IteratorExpired:
            # One is lost now and then. A shard whose iterators are all lost cannot be read.
            lost = StorageUnavailable("its iterators expire at once")
            self._retry(reading, lost if reading.failures else None)
        except StorageUnavailable as error:
            self._retry(reading, error)

    def _retry(self, reading: ShardReading, error: StorageUnavailable | None) -> None:
        reading.iterator = None
        reading.failures += 1
        if error is not None:
            self._fail(f"Shard {reading.shard_id} cannot be read", error)
            if self._settings.once and reading.failures >= _MAX_FAILURES:
                raise error

    async def _read_on(self, reading: ShardReading) -> None:
        if reading.iterator is None and not await self._begin(reading):
            return
        assert reading.iterator is not None
        page = await self._stream.read(reading.shard_id, reading.iterator)
        self.progress.records += page.records
        if self._work.concerns(page.batch):
            if not await self._has_lease(reading):
                return
            await self._process(reading, page)
        else:
            self.progress.skipped += page.batch.skipped
        self._advance(reading, page)
        if reading.has_ended:
            await self._release(reading)
            self._end(reading)
        elif reading.is_ahead and self._is_save_due(reading):
            await self._save(reading, self._io.now_ms() + self._settings.lease_ms)

    async def _begin(self, reading: ShardReading) -> bool:
        """Go to the checkpoint, unless another reader is at work."""
        known = await self._checkpoints.read(reading.shard_id)
        self._go_to(reading, known)
        if self._is_of_another(known):
            self._stand_by(reading, known)
            return False
        reading.idle_until_ms = 0
        reading.is_left = False
        reading.iterator = await self._stream.begin(reading.shard_id, reading.position)
        if reading.iterator is None:
            self._end(reading)
        return reading.iterator is not None

    def _is_of_another(self, known: Checkpoint) -> bool:
        is_mine = known.owner == self._settings.owner
        return not is_mine and known.lease_ends_ms > self._io.now_ms()

    def _stand_by(self, reading: ShardReading, known: Checkpoint) -> None:
        reading.iterator = None
        reading.is_ahead = False
        reading.lag_ms = reading.leased_until_ms = 0
        reading.is_left = 0 < reading.idle_until_ms < known.lease_ends_ms
        reading.idle_until_ms = known.lease_ends_ms
        if known.wanted_by == self._settings.owner:
            soon_ms = self._io.now_ms() + _ASKED_MS
            reading.idle_until_ms = min(reading.idle_until_ms, soon_ms)

    def _go_to(self, reading: ShardReading, known: Checkpoint) -> None:
        if known.record_id is not None and is_after(known.record_id, reading.position):
            reading.position = known.record_id

    async def _has_lease(self, reading: ShardReading) -> bool:
        """Ask for the lease, if this reader does not have it. A reader that gets it goes on from
        the checkpoint, which may be ahead of it."""
        now_ms = self._io.now_ms()
        if reading.leased_until_ms > now_ms + _MARGIN_MS:
            return True
        until_ms = now_ms + self._settings.lease_ms
        known = await self._checkpoints.lease(reading.shard_id, self._settings.owner, until_ms)
        if self._is_of_another(known):
            self._go_to(reading, known)
            self._stand_by(reading, known)
            return False
        if not reading.is_ahead:
            reading.saved_ms = now_ms
        reading.leased_until_ms = until_ms
        if known.record_id is not None and is_after(known.record_id, reading.position):
            reading.position, reading.iterator = known.record_id, None
            return False
        return True

    async def _process(self, reading: ShardReading, page: StreamPage) -> None:
        result = await process_batch(self._work, page.batch)
        if result.failed:
            raise StorageUnavailable(f"{len(result.failed)} records were not dealt with")
        self.progress.add(result)
        reading.is_ahead = True

    def _advance(self, reading: ShardReading, page: StreamPage) -> None:
        now_ms = self._io.now_ms()
        at_ms = now_ms if page.last_ms is None else page.last_ms
        reading.position = page.last_id or reading.position
        reading.iterator = page.following
        reading.has_ended = page.following is None
        reading.lag_ms = max(0, now_ms - at_ms)
        reading.pause_s = self._pause_after(page, reading.lag_ms, at_ms > reading.last_ms)
        reading.last_ms = at_ms
        reading.failures = 0
        # A record that was written after this reader began is beyond what it is to catch up with.
        if page.records == 0 or at_ms > self._began_ms:
            reading.empty_pages += 1
        else:
            reading.empty_pages = 0

    def _pause_after(self, page: StreamPage, lag_ms: int, is_later: bool) -> float:
        """Return how long to wait before the next page. Records that are old are a backlog, which
        is read at once, as long as each page brings later ones. Where it does not, the server may
        tell times to the minute, so that its newest records look old: without a pause, each of
        them would be counted in a batch alone."""
        poll_s = self._settings.poll_s
        is_late = lag_ms > 2000 * poll_s
        if page.is_full or (is_late and is_later):
            return 0.0
        return poll_s / 4 if is_late else poll_s

    def _is_save_due(self, reading: ShardReading) -> bool:
        return self._io.now_ms() >= reading.saved_ms + _CHECKPOINT_MS

    async def _save(self, reading: ShardReading, until_ms: int) -> None:
        """Write the checkpoint, which renews the lease. A reader that has lost its lease reads on
        from the checkpoint of the reader that has it."""
        checkpoint = Checkpoint(reading.position, self._settings.owner, until_ms)
        saved = await self._checkpoints.save(reading.shard_id, checkpoint)
        reading.saved_ms = self._io.now_ms()
        reading.is_ahead = False
        if saved is None:
            reading.leased_until_ms = 0
            reading.iterator = None
            return
        self.progress.checkpoints += 1
        reading.leased_until_ms = until_ms
        if saved.wanted_by and until_ms:
            await self._hand_over(reading, saved.wanted_by)

    async def _hand_over(self, reading: ShardReading, asking: str) -> None:
        """Give up the lease between two batches, because another reader has asked for it."""
        logger.info("Shard %s is handed over to %s", reading.shard_id, asking)
        await self._save(reading, 0)
        # The asking reader looks as often as this one, and should be the first to look.
        left_ms = self._io.now_ms() + max(_HANDOVER_MS, round(2000 * self._settings.poll_s))
        self._stand_by(reading, Checkpoint(owner=asking, lease_ends_ms=left_ms))

    def _end(self, reading: ShardReading) -> None:
        """Leave a shard that has ended, and look for its children at once."""
        del self.progress.shards[reading.shard_id]
        self._ended.add(reading.shard_id)
        self._discovery_ms = 0

    async def _release(self, reading: ShardReading) -> None:
        """Save what was dealt with and end the lease, so that another reader need not wait."""
        if not reading.is_ahead and reading.leased_until_ms <= self._io.now_ms():
            return
        try:
            await self._save(reading, 0)
        except StorageUnavailable as error:
            self._fail(f"Shard {reading.shard_id} has an old checkpoint", error)

    def _fail(self, what: str, error: StorageUnavailable) -> None:
        """Go on after a failure that may pass, and end with one that does not."""
        self.progress.failures += 1
        if not error.retryable:
            raise error
        logger.warning("%s: %s", what, error)


def _is_short(reading: ShardReading) -> bool:
    """Whether a shard that gets no more records has some that were not read. An empty page does
    not mean that there are none."""
    return reading.last_id is not None and is_after(reading.last_id, reading.position)


def is_after(record_id: str, other: str | None) -> bool:
    """Whether a record comes later in its shard than another. Ids are numbers of any length."""
    return other is None or int(record_id) > int(other)
