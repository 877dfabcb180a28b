"""What every flow works on: one namespace of one store, through one driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..core.bucket import Bucket, BucketAddress
from ..core.writes import Absent, Outcome
from ..local.bounded import Bounded
from ..local.single_flight import Readings
from ..ports.io import Io
from ..ports.repository_protocol import RepositoryProtocol
from .acquire.refusals import Refusals
from .acquire.wait_queue import Turnstiles
from .coalesce.queue import Lanes
from .config.cache import ConfigCache

DEFAULT_TTL_MULTIPLIER = 7
# An acquire from a bucket in use that is not remembered takes two calls. Remembered, it takes one,
# and about a kilobyte of memory.
MAX_IMAGES = 100_000


class Images(Protocol):
    """Buckets as they were last seen. `Bounded` is one; a store that is in this process can
    show them as they are."""

    @property
    def get(self) -> Callable[[BucketAddress], Bucket | None]:
        """The bucket at an address, if one was seen there."""

    def put(self, address: BucketAddress, bucket: Bucket, /) -> None:
        """It looks like this now."""

    def discard(self, address: BucketAddress, /) -> None:
        """There is none."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A namespace, and what this process knows and does about it.

    `images`: buckets as they were last seen here, to plan the next write from.
    `shard_counts`: into how many items a bucket has been split, where more than one.
    `preferred_shards`: which item of a bucket that was split this process keeps to.
    `readings`: what is being read of the configuration.
    `lanes`: who is writing to which item. `coalesces`: writes that meet there go together.
    `linger_s`: how long a write waits for others that may come.
    """

    store: RepositoryProtocol
    io: Io
    namespace_id: str
    cache: ConfigCache = field(default_factory=ConfigCache)
    readings: Readings = field(default_factory=Readings)
    turnstiles: Turnstiles = field(default_factory=Turnstiles)
    images: Images = field(default_factory=lambda: Bounded[BucketAddress, Bucket](MAX_IMAGES))
    shard_counts: Bounded[BucketAddress, int] = field(default_factory=lambda: Bounded(MAX_IMAGES))
    preferred_shards: Bounded[BucketAddress, int] = field(
        default_factory=lambda: Bounded(MAX_IMAGES)
    )
    refusals: Refusals = field(default_factory=lambda: Refusals(ttl_seconds=0))
    lanes: Lanes = field(default_factory=Lanes)
    coalesces: bool = False
    linger_s: float = 0
    bucket_ttl_multiplier: int = DEFAULT_TTL_MULTIPLIER
    stack_name: str = ""
    region: str | None = None
    endpoint_url: str | None = None

    def remember(self, address: BucketAddress, outcome: Outcome) -> None:
        """Keep the image that came with an outcome."""
        if isinstance(outcome, Absent):
            self.images.discard(address)
            return
        bucket = outcome.bucket
        self.images.put(address, bucket)
        if 1 < bucket.shard_count > self.shard_count(address):
            self.shard_counts.put(address.home, bucket.shard_count)

    def shard_count(self, address: BucketAddress) -> int:
        """Into how many items a bucket is known to have been split."""
        return self.shard_counts.get(address.home, 1)
