"""The follower of a stream: order of shards, leases, lost iterators, checkpoints."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field

import pytest

from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.changes import AuditRemoval, ChangeBatch
from zae_limiter.core.exceptions import StorageUnavailable
from zae_limiter.core.usage import UsageAddition
from zae_limiter.flows.stream.aggregate import StreamSettings
from zae_limiter.flows.stream.batch import StreamWork
from zae_limiter.flows.stream.follow import Follower, FollowSettings, is_after
from zae_limiter.flows.stream.progress import FollowProgress
from zae_limiter.ports.archive import ArchiveObject
from zae_limiter.ports.io import Signal
from zae_limiter.ports.stream import Checkpoint, IteratorExpired, StreamPage, StreamShard
from zae_limiter.runtime.blocking import run
from zae_limiter.testing import ManualClock, sync_memory_repository

PAGE = 2
NOISE = ""


@dataclass
class FakeStream:
    """Shards in memory. A record is the id of an expired audit event, or noise. Its number is its
    place in the shard, from 1 on; `failing` names calls that fail, each once."""

    clock: ManualClock
    parents: dict[str, set[str]]
    records: dict[str, list[str]]
    closed: set[str] = field(default_factory=set)
    failing: list[Exception] = field(default_factory=list)
    is_unreachable: bool = False
    hiccups: int = 0
    last_ids: dict[str, str] = field(default_factory=dict)
    empty_pages: int = 0
    precision_ms: int = 1
    times_ms: list[int] = field(default_factory=list)

    async def shards(self) -> list[StreamShard]:
        if self.is_unreachable or self.hiccups:
            self.hiccups -= 1
            raise StorageUnavailable("unreachable")
        return [
            StreamShard(each, frozenset(after), self.last_ids.get(each))
            for each, after in self.parents.items()
        ]

    async def begin(self, shard_id: str, after_id: str | None) -> str | None:
        return after_id or "0"

    async def read(self, shard_id: str, iterator: str) -> StreamPage:
        if self.failing:
            raise self.failing.pop()
        first = int(iterator)
        found = self.records[shard_id][first : first + PAGE]
        if self.empty_pages:
            self.empty_pages -= 1
            return StreamPage(ChangeBatch(), 0, None, None, iterator)
        last = first + len(found)
        removals = [self._removal(r, first + n + 1) for n, r in enumerate(found) if r != NOISE]
        is_end = shard_id in self.closed and last == len(self.records[shard_id])
        return StreamPage(
            ChangeBatch(removals=tuple(removals)),
            len(found),
            str(last) if found else None,
            self._written_ms(last) if found else None,
            None if is_end else str(last),
        )

    def _written_ms(self, last: int) -> int:
        at_ms = self.times_ms[last - 1] if self.times_ms else self.clock.now_ms()
        return at_ms // self.precision_ms * self.precision_ms

    def _removal(self, event_id: str, number: int) -> AuditRemoval:
        event = AuditEvent(event_id, "2024-01-01T00:00:00Z", "limits_set", "key-1")
        return AuditRemoval("ns-1", event, True, self.clock.now_ms(), str(number))


@dataclass
class FakeCheckpoints:
    """Checkpoints in memory, and how often they were written."""

    clock: ManualClock
    kept: dict[str, Checkpoint] = field(default_factory=dict)
    writes: int = 0

    async def read(self, shard_id: str) -> Checkpoint:
        return self.kept.get(shard_id, Checkpoint())

    async def lease(self, shard_id: str, owner: str, until_ms: int) -> Checkpoint:
        known = await self.read(shard_id)
        if known.owner in ("", owner) or known.lease_ends_ms < self.clock.now_ms():
            self.writes += 1
            self.kept[shard_id] = Checkpoint(known.record_id, owner, until_ms)
        return self.kept[shard_id]

    async def save(self, shard_id: str, checkpoint: Checkpoint) -> Checkpoint | None:
        self.writes += 1
        known = self.kept[shard_id]
        if known.owner != checkpoint.owner:
            return None
        self.kept[shard_id] = checkpoint._replace(wanted_by=known.wanted_by)
        return self.kept[shard_id]

    async def read_all(self) -> dict[str, Checkpoint]:
        return dict(self.kept)

    async def ask(self, shard_id: str, owner: str, asking: str) -> None:
        self.writes += 1
        self.kept[shard_id] = self.kept[shard_id]._replace(wanted_by=asking)


@dataclass
class FakeArchive:
    """The ids of archived events in order; fails as often as it is told to."""

    seen: list[str] = field(default_factory=list)
    failures: int = 0

    async def put(self, archived: ArchiveObject) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("no")
        lines = gzip.decompress(archived.content).decode().splitlines()
        self.seen += [json.loads(line)["event_id"] for line in lines]


class NoUsage:
    """No snapshot is asked for here."""

    async def read(self, *query: object) -> tuple[list[object], None]:
        return [], None

    async def add(self, addition: UsageAddition) -> bool:
        raise AssertionError(addition)


class World:
    """A stream of two generations of shards, and readers of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stream = FakeStream(
            self.clock,
            {"child": {"parent"}, "parent": {"gone"}, "other": set()},
            {"parent": ["a", "b", NOISE, "c"], "child": ["d", NOISE], "other": []},
            {"parent"},
        )
        self.checkpoints = FakeCheckpoints(self.clock)
        self.archive = FakeArchive()

    def follow(self, owner: str = "me") -> FollowProgress:
        follower, stop = self.follower(FollowSettings(owner, once=True))
        run(follower.follow(stop, lambda progress: None))
        return follower.progress

    def rounds(self, count: int, owner: str) -> list[str]:
        """Follow for some rounds, a second apart. Return the events that were archived."""
        follower, stop = self.follower(FollowSettings(owner))
        left, before = count, len(self.archive.seen)

        def report(progress: FollowProgress) -> None:
            nonlocal left
            left -= 1
            self.clock.advance(1)
            if left == 0:
                stop.set()

        run(follower.follow(stop, report))
        return self.archive.seen[before:]

    def follower(self, settings: FollowSettings) -> tuple[Follower, Signal]:
        scope = sync_memory_repository(clock=self.clock).scope
        work = StreamWork(scope, NoUsage(), StreamSettings(), self.archive)  # type: ignore[arg-type]
        return Follower(work, self.stream, self.checkpoints, settings), scope.io.signal()


@pytest.fixture
def world() -> World:
    return World()


def test_a_shard_is_read_after_its_parent_has_been_read_to_the_end(world: World) -> None:
    progress = world.follow()
    assert world.archive.seen == ["a", "b", "c", "d"]
    assert progress.events_archived == 4
    assert "parent" not in progress.shards


def test_a_second_reader_continues_at_the_checkpoints(world: World) -> None:
    world.follow()
    world.stream.records["child"] += ["e"]
    assert world.follow("another").events_archived == 1
    assert world.archive.seen == ["a", "b", "c", "d", "e"]


def test_noise_alone_is_never_written_about(world: World) -> None:
    world.stream.records = {"parent": [NOISE] * 9, "child": [NOISE] * 9, "other": [NOISE]}
    world.follow()
    assert world.checkpoints.writes == 0


def test_a_reader_gives_its_leases_back_at_the_end(world: World) -> None:
    world.follow()
    assert {each.owner for each in world.checkpoints.kept.values()} == {"me"}
    assert world.checkpoints.kept["child"].lease_ends_ms == 0


@dataclass
class RenewedCheckpoints(FakeCheckpoints):
    """Checkpoints of a living reader: whenever one is read, its lease has been renewed."""

    async def read(self, shard_id: str) -> Checkpoint:
        known = await super().read(shard_id)
        if known.owner == "another":
            known = known._replace(lease_ends_ms=self.clock.now_ms() + 20_000)
            self.kept[shard_id] = known
        return known


def test_a_reader_that_runs_once_leaves_a_shard_to_an_owner_that_lives(world: World) -> None:
    world.checkpoints = RenewedCheckpoints(world.clock)
    world.checkpoints.kept["parent"] = Checkpoint("2", "another")
    progress = world.follow()
    assert world.archive.seen == []
    assert progress.shards_of_others == 1


def test_a_reader_that_runs_once_takes_over_from_an_owner_that_was_killed(world: World) -> None:
    until_ms = world.clock.now_ms() + 20_000
    world.checkpoints.kept["parent"] = Checkpoint("2", "another", until_ms)
    world.follow()
    assert world.archive.seen == ["c", "d"]
    assert world.clock.now_ms() >= until_ms


@pytest.mark.parametrize("error", [IteratorExpired(), StorageUnavailable("busy")])
def test_a_lost_page_is_read_again(world: World, error: Exception) -> None:
    world.stream.failing = [error]
    world.follow()
    assert world.archive.seen == ["a", "b", "c", "d"]


def test_a_shard_whose_iterators_all_expire_ends_a_reader_that_runs_once(world: World) -> None:
    world.stream.failing = [IteratorExpired() for _ in range(1000)]
    with pytest.raises(StorageUnavailable, match="expire at once"):
        world.follow()


def test_empty_pages_of_a_shard_that_has_ended_are_not_taken_for_its_end(world: World) -> None:
    world.stream.parents = {"parent": set()}
    world.stream.last_ids = {"parent": "4"}
    world.stream.empty_pages = 100
    world.follow()
    assert world.archive.seen == ["a", "b", "c"]


def test_a_batch_that_fails_is_dealt_with_again_before_what_follows(world: World) -> None:
    world.archive.failures = 2
    progress = world.follow()
    assert world.archive.seen == ["a", "b", "c", "d"]
    assert progress.failures == 2


def test_a_batch_that_fails_for_ever_ends_a_reader_that_runs_once(world: World) -> None:
    world.archive.failures = 1000
    with pytest.raises(StorageUnavailable):
        world.follow()
    assert world.checkpoints.kept["parent"].record_id is None


def test_a_failure_that_will_not_pass_ends_the_reader(world: World) -> None:
    world.stream.failing = [StorageUnavailable("no credentials", retryable=False)]
    with pytest.raises(StorageUnavailable, match="no credentials"):
        world.follow()


def test_a_stream_that_cannot_be_listed_is_not_taken_for_an_empty_one(world: World) -> None:
    world.stream.is_unreachable = True
    with pytest.raises(StorageUnavailable, match="unreachable"):
        world.follow()


def test_a_stream_that_cannot_be_listed_for_a_moment_is_listed_again(world: World) -> None:
    world.stream.hiccups = 3
    assert world.follow().failures == 3
    assert world.archive.seen == ["a", "b", "c", "d"]


def many_shards(world: World) -> None:
    shards = [f"s{number}" for number in range(4)]
    world.stream.parents = {each: set() for each in shards}
    world.stream.records = {each: [each] * 100 for each in shards}
    world.stream.closed.clear()


def test_a_reader_asks_a_reader_with_more_shards_for_its_part(world: World) -> None:
    many_shards(world)
    until_ms = world.clock.now_ms() + 30_000
    world.checkpoints.kept = {f"s{n}": Checkpoint("2", "busy", until_ms) for n in range(4)}
    assert world.rounds(3, "new") == []
    wanted = [shard for shard, known in world.checkpoints.kept.items() if known.wanted_by == "new"]
    assert len(wanted) == 2
    for shard in wanted:
        world.checkpoints.kept[shard] = Checkpoint("50", "busy", 0, "new")
    assert set(world.rounds(5, "new")) == set(wanted)


def test_a_reader_hands_a_shard_over_that_another_reader_has_asked_for(world: World) -> None:
    many_shards(world)
    follower, stop = world.follower(FollowSettings("busy"))
    rounds = 0

    def report(progress: FollowProgress) -> None:
        nonlocal rounds
        rounds += 1
        world.clock.advance(1)
        if rounds == 2:
            kept = world.checkpoints.kept
            kept["s1"] = kept["s1"]._replace(wanted_by="new")
        if rounds == 6:
            stop.set()
            done = world.archive.seen.count("s1")
            assert world.checkpoints.kept["s1"] == Checkpoint(str(done), "busy", 0, "new")
            assert world.archive.seen.count("s2") > done

    run(follower.follow(stop, report))
    assert rounds > 6


def test_a_reader_that_runs_once_asks_for_nothing(world: World) -> None:
    many_shards(world)
    world.checkpoints = RenewedCheckpoints(world.clock)
    world.checkpoints.kept = {f"s{n}": Checkpoint("2", "another") for n in range(4)}
    world.follow()
    assert world.checkpoints.writes == 0


def test_a_reader_pauses_where_the_times_of_records_are_told_to_the_minute(world: World) -> None:
    world.stream.precision_ms = 60_000
    began_ms = world.clock.now_ms()
    follow_writes(world, rounds=120, per_s=1)
    assert world.clock.now_ms() - began_ms > 25_000


def test_a_reader_keeps_up_with_more_records_a_second_than_a_page_has(world: World) -> None:
    world.stream.precision_ms = 1000
    left = follow_writes(world, rounds=400, per_s=3 * PAGE)
    assert left <= 4 * 3 * PAGE


def follow_writes(world: World, rounds: int, per_s: int) -> int:
    """Follow a shard that is written to steadily, and return how many records are left to read."""
    stream = world.stream
    stream.parents = {"other": set()}
    follower, stop = world.follower(FollowSettings("me"))
    written_ms = world.clock.now_ms()
    left = rounds

    def report(progress: FollowProgress) -> None:
        nonlocal left, written_ms
        while written_ms < world.clock.now_ms():
            written_ms += 1000 // per_s
            stream.times_ms.append(written_ms)
            stream.records["other"].append(NOISE)
        left -= 1
        if left == 0:
            stop.set()

    run(follower.follow(stop, report))
    return len(stream.times_ms) - follower.progress.records


def test_records_are_compared_by_number() -> None:
    assert is_after("10", "9")
    assert not is_after("9", "10")
    assert is_after("0", None)
