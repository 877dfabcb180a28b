"""The scope of a flow: one namespace of one store, reached through one driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..core.bucket import Bucket, BucketAddress
from ..core.writes import UNSEEN, Absent, Outcome
from ..local.bounded import Bounded
from ..local.listeners import Listeners
from ..local.single_flight import SingleFlight
from ..ports.io import Io
from ..ports.repository_protocol import BucketImages, RepositoryProtocol
from .acquire.counts import AcquireCounts
from .acquire.refusal_cache import RefusalCache
from .acquire.wait_queue import WaitQueues
from .coalesce.queue import WriteQueues
from .config.cache import ConfigCache
from .shards.known_split import KnownSplit, learned

if TYPE_CHECKING:
    from .acquire.charge import Progress

_P = ParamSpec("_P")
T = TypeVar("T")
DEFAULT_TTL_MULTIPLIER = 7
# An acquire from a bucket in use that is not remembered takes two calls. Remembered, it takes one,
# and about a kilobyte of memory.
MAX_IMAGES = 100_000
_MAX_TENTATIVE = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings with which a repository was opened.

    `coalesces`: writes of this process that meet at a bucket item go together.
    `linger_s`: how long a batch waits for followers that may still come.
    `patience_s`: how long a call waits for the store at most, all retries included.
    """

    coalesces: bool = False
    linger_s: float = 0
    bucket_ttl_multiplier: int = DEFAULT_TTL_MULTIPLIER
    stack_name: str = ""
    region: str | None = None
    endpoint_url: str | None = None
    patience_s: float = math.inf


@dataclass(frozen=True, slots=True)
class LocalState:
    """Everything that this process remembers, and what it has under way.

    Keys are bucket addresses, which begin with a namespace id; only the configuration cache, the
    reads that fill it and the counts belong to one namespace.

    `images`: bucket items as they were last seen, to plan the next write from.
    `splits`: the buckets that have been split into several items.
    `preferred_shards`: which item of a split bucket this process keeps to.
    `doubted`: buckets that refused a charge made in parallel with those of other levels, and have
    passed none since.
    `tentative`: charges by operation of which it was not certain that they come to pass.
    """

    config_cache: ConfigCache = field(default_factory=ConfigCache)
    config_reads: SingleFlight = field(default_factory=SingleFlight)
    images: BucketImages = field(default_factory=lambda: Bounded[BucketAddress, Bucket](MAX_IMAGES))
    splits: Bounded[BucketAddress, KnownSplit] = field(default_factory=lambda: Bounded(MAX_IMAGES))
    preferred_shards: Bounded[BucketAddress, int] = field(
        default_factory=lambda: Bounded(MAX_IMAGES)
    )
    doubted: Bounded[BucketAddress, bool] = field(default_factory=lambda: Bounded(MAX_IMAGES))
    tentative: Bounded[str, Sequence[Progress]] = field(
        default_factory=lambda: Bounded(_MAX_TENTATIVE)
    )
    refusals: RefusalCache = field(default_factory=lambda: RefusalCache(ttl_seconds=0))
    write_queues: WriteQueues = field(default_factory=WriteQueues)
    wait_queues: WaitQueues = field(default_factory=WaitQueues)
    counts: AcquireCounts = field(default_factory=AcquireCounts)
    listeners: Listeners = field(default_factory=Listeners)

    def remember(self, address: BucketAddress, outcome: Outcome) -> None:
        """Keep the image that came with an outcome."""
        if isinstance(outcome, Absent) or outcome.bucket is UNSEEN:
            self.images.discard(address)
            return
        bucket = outcome.bucket
        self.images.put(address, bucket)
        if bucket.shard_count > 1 or self.splits.keys:
            self._learn(address, bucket)

    def _learn(self, address: BucketAddress, bucket: Bucket) -> None:
        home = address.home
        known = self.splits.get(home)
        now_known = learned(known, address, bucket)
        if now_known is None:
            self.splits.discard(home)
        elif now_known is not known:
            self.splits.put(home, now_known)

    def settle_split(self, home: BucketAddress, shard_count: int) -> None:
        """Keep the most shards that any item was found to have: siblings may have been merged."""
        known = self.splits.get(home)
        if known is not None and 1 < shard_count != known.shard_count:
            self.splits.put(home, known._replace(shard_count=shard_count))

    def shard_count(self, address: BucketAddress) -> int:
        """The number of items into which a bucket is known to have been split."""
        known = self.splits.get(address.home)
        return 1 if known is None else known.shard_count

    def image(self, address: BucketAddress) -> Bucket | None:
        """The item as it was last seen, if it is in force as far as this process knows."""
        bucket = self.images.get(address)
        if bucket is None or address.shard == 0 or self.is_in_force(address, bucket):
            return bucket
        return None

    def is_in_force(self, address: BucketAddress, bucket: Bucket) -> bool:
        """Whether an item belongs to the bucket. A remnant of another generation holds nothing."""
        known = self.splits.get(address.home)
        return address.shard == 0 if known is None else known.is_in_force(address, bucket)


@dataclass(frozen=True, slots=True)
class Scope:
    """A namespace of a store, the driver's `Io`, and the state of this process.

    `namespace_name`: the name that leads to the namespace; without one its registration is not
    confirmed.
    """

    store: RepositoryProtocol
    io: Io
    namespace_id: str
    settings: Settings = field(default_factory=Settings)
    local: LocalState = field(default_factory=LocalState)
    namespace_name: str = ""

    def in_time(self, flow: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Run a flow of a few store calls, which end within the total timeout together."""
        return self.io.within(flow, min(self.settings.patience_s, self.io.left_s()))


def bounded(
    flow: Callable[Concatenate[Scope, _P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Scope, _P], Coroutine[Any, Any, T]]:
    """Give a flow one deadline for all its store calls. Without this, each would have one of its
    own. A flow that reads any number of pages has a deadline for each page instead."""

    @wraps(flow)
    def in_time(scope: Scope, /, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, T]:
        return scope.in_time(flow(scope, *args, **kwargs))

    return in_time
