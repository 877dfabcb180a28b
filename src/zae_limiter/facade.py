"""What the asynchronous and the blocking repository have in common."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from .backends.urls import StoreUrl, dynamodb_url, open_store, parse_url
from .core.exceptions import ValidationError
from .core.models import BackendCapabilities, CacheStats
from .core.validation import validate_namespace
from .flows.acquire.refusal_cache import DEFAULT_REFUSAL_TTL_SECONDS, RefusalCache
from .flows.admin import namespaces
from .flows.config.cache import ConfigCache
from .flows.opening import choose_namespace, choose_stack, choose_url
from .flows.scope import (
    DEFAULT_TTL_MULTIPLIER,
    MAX_IMAGES,
    BucketImages,
    LocalState,
    Scope,
    Settings,
)
from .local.bounded import Bounded
from .local.single_flight import Readings
from .ports.io import Io
from .ports.repository_protocol import NamespaceRecord, RepositoryProtocol


@dataclass(frozen=True, slots=True)
class Writing:
    """How this process writes to buckets."""

    coalesce: bool = True
    linger_ms: float = 0
    refusal_cache_ttl: float = DEFAULT_REFUSAL_TTL_SECONDS

    def check(self) -> None:
        """Refuse what makes no sense."""
        if not isinstance(self.coalesce, bool):
            raise ValidationError("coalesce", self.coalesce, "must be true or false")
        _check_number("linger_ms", self.linger_ms, 1000)
        _check_number("refusal_cache_ttl", self.refusal_cache_ttl, 60)


def _check_number(field: str, value: object, maximum: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        raise ValidationError(field, value, f"must be a number from 0 to {maximum}")


def _check_multiplier(value: object) -> None:
    if type(value) is not int:
        raise ValidationError("bucket_ttl_multiplier", value, "must be an integer")


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What `open` and `connect` were asked for, checked."""

    url: StoreUrl
    namespace: str
    config_cache_ttl: float
    bucket_ttl_multiplier: int
    create_table: bool
    transport: str | None
    writing: Writing


def open_options(
    namespace: str | None,
    url: str | None,
    config_cache_ttl: float = 60,
    bucket_ttl_multiplier: int = DEFAULT_TTL_MULTIPLIER,
    *,
    stack: str | None = None,
    region: str | None = None,
    endpoint_url: str | None = None,
    create_table: bool = False,
    transport: str | None = None,
    connect_timeout: float | None = None,
    read_timeout: float | None = None,
    writing: Writing | None = None,
) -> OpenOptions:
    """Arguments and environment, checked before any I/O."""
    _check_number("config_cache_ttl", config_cache_ttl, 86_400)
    _check_multiplier(bucket_ttl_multiplier)
    writing = writing or Writing()
    writing.check()
    chosen = choose_url(url, stack, region, endpoint_url, os.environ)
    if chosen is None:
        chosen = dynamodb_url(choose_stack(stack, os.environ), region, endpoint_url)
    return OpenOptions(
        parse_url(chosen).with_timeouts(connect_timeout, read_timeout),
        validate_namespace(choose_namespace(namespace, os.environ)),
        config_cache_ttl,
        bucket_ttl_multiplier,
        create_table,
        transport,
        writing,
    )


class RepositoryBase:
    """A namespace of a store, and what this process knows of it."""

    def __init__(self, scope: Scope, namespace_name: str, *, owns_store: bool) -> None:
        self.scope = scope
        self._namespace_name = namespace_name
        self._owns_store = owns_store

    @property
    def namespace_name(self) -> str:
        """The name of the namespace."""
        return self._namespace_name

    @property
    def namespace_id(self) -> str:
        """The opaque id that its data is stored under."""
        return self.scope.namespace_id

    @property
    def stack_name(self) -> str:
        """What the store is called: its stack, or its URL where it has none."""
        return self.scope.settings.stack_name

    @property
    def table_name(self) -> str:
        """The table has the name of its stack."""
        return self.scope.settings.stack_name

    @property
    def region(self) -> str | None:
        """The region that was asked for."""
        return self.scope.settings.region

    @property
    def endpoint_url(self) -> str | None:
        """The endpoint that was asked for."""
        return self.scope.settings.endpoint_url

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the store can do."""
        return self.scope.store.capabilities

    def get_cache_stats(self) -> CacheStats:
        """How the configuration cache has been doing."""
        local = self.scope.local
        return replace(local.config_cache.stats(), local_rejections=local.refusals.recalled)

    def _multiplier(self, chosen: int | None) -> int:
        """The one that was chosen, else our own."""
        multiplier = self.scope.settings.bucket_ttl_multiplier if chosen is None else chosen
        _check_multiplier(multiplier)
        return multiplier

    def _scope_of(self, record: NamespaceRecord, bucket_ttl_multiplier: int) -> Scope:
        """A scope for another namespace of the store. What is keyed by bucket addresses is shared,
        since an address names its namespace. The configuration cache is new, and so are the
        readings that fill it: a reading counts for one cache's generation only."""
        scope = self.scope
        cache = ConfigCache(scope.local.config_cache.ttl_seconds)
        return replace(
            scope,
            namespace_id=record.namespace_id,
            settings=replace(scope.settings, bucket_ttl_multiplier=bucket_ttl_multiplier),
            local=replace(scope.local, config_cache=cache, config_reads=Readings()),
        )


async def open_scope(
    options: OpenOptions, io: Io, *, blocking: bool, create: bool
) -> tuple[Scope, str]:
    """The store and namespace that were asked for, made if that is wanted, and its name."""
    store: RepositoryProtocol | None = None
    try:
        store = await open_store(
            options.url,
            io,
            create=create,
            blocking=blocking,
            create_table=options.create_table,
            transport=options.transport,
        )
        record = await _namespace(options, store, io, create=create)
    except BaseException:
        await (io.close() if store is None else close_store(store, io))
        raise
    return _first_scope(options, store, io, record), record.name


async def _namespace(
    options: OpenOptions, store: RepositoryProtocol, io: Io, *, create: bool
) -> NamespaceRecord:
    if create:
        return await namespaces.register(store, io, options.namespace)
    return await namespaces.find(store, options.namespace)


async def close_store(store: RepositoryProtocol, io: Io) -> None:
    """Let go of the store and of the driver's threads."""
    await store.close()
    await io.close()


def _first_scope(
    options: OpenOptions, store: RepositoryProtocol, io: Io, record: NamespaceRecord
) -> Scope:
    return Scope(
        store,
        io,
        record.namespace_id,
        Settings(
            options.writing.coalesce,
            options.writing.linger_ms / 1000,
            options.bucket_ttl_multiplier,
            options.url.name,
            options.url.region,
            options.url.endpoint_url,
        ),
        LocalState(
            ConfigCache(options.config_cache_ttl),
            images=_images(store),
            refusals=RefusalCache(options.writing.refusal_cache_ttl),
        ),
    )


def _images(store: RepositoryProtocol) -> BucketImages:
    from .backends.memory import MemoryStore

    return store.images if isinstance(store, MemoryStore) else Bounded(MAX_IMAGES)
