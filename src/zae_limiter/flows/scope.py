"""What every flow works on: one namespace of one store, through one driver."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.composite import Bucket, BucketAddress
from ..ports.io import Io
from ..ports.repository_protocol import RepositoryProtocol
from .bounded import Bounded
from .config_cache import ConfigCache
from .turnstile import Turnstiles

DEFAULT_TTL_MULTIPLIER = 7
MAX_IMAGES = 10_000


@dataclass(frozen=True, slots=True)
class Scope:
    """A namespace, and what this process knows and does about it.

    `images`: buckets as they were last seen here, to plan the next write from.
    """

    store: RepositoryProtocol
    io: Io
    namespace_id: str
    cache: ConfigCache = field(default_factory=ConfigCache)
    turnstiles: Turnstiles = field(default_factory=Turnstiles)
    images: Bounded[BucketAddress, Bucket] = field(default_factory=lambda: Bounded(MAX_IMAGES))
    bucket_ttl_multiplier: int = DEFAULT_TTL_MULTIPLIER
    stack_name: str = ""
