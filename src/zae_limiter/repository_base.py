"""This module is the common part of the asynchronous and the blocking repository."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Self

from .core.models import BackendCapabilities, CacheStats
from .core.stats import LimiterStats, StoreTraffic
from .deployed import deploy_stack
from .flows.acquire.counts import AcquireCounts
from .flows.config.cache import ConfigCache
from .flows.scope import Scope
from .infra.options import StackOptions
from .local.single_flight import SingleFlight
from .opening import check_multiplier
from .ports.listener import Listener
from .ports.repository_protocol import CountsTraffic, HasBreaker, NamespaceRecord


class RepositoryBase:
    """A repository is one namespace of a store, with the local state of this process."""

    scope: Scope
    _namespace_name: str
    _owns_store: bool
    _stack_options: StackOptions | None = None

    @classmethod
    def on_scope(cls, scope: Scope, namespace_name: str, *, owns_store: bool) -> Self:
        """Return a repository on a scope that is open. One that owns the store closes it."""
        made = cls.__new__(cls)
        made._settle(scope, namespace_name, owns_store=owns_store)
        return made

    def _settle(self, scope: Scope, namespace_name: str, *, owns_store: bool) -> None:
        self.scope = scope
        self._namespace_name = namespace_name
        self._owns_store = owns_store

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.stack_name!r}, namespace {self._namespace_name!r}>"

    def _stack_deployment(self) -> Callable[[], None] | None:
        """Return the call that deploys the stack, if options were given for that. It blocks."""
        if self._stack_options is None:
            return None
        settings = self.scope.settings
        place = (settings.stack_name, settings.region, settings.endpoint_url)
        return partial(deploy_stack, *place, self._stack_options)

    @property
    def namespace_name(self) -> str:
        """The name of the namespace."""
        return self._namespace_name

    @property
    def namespace_id(self) -> str:
        """The opaque id of the namespace, which every key of its data begins with."""
        return self.scope.namespace_id

    @property
    def stack_name(self) -> str:
        """The name of the store's stack, or its URL where it has none."""
        return self.scope.settings.stack_name

    @property
    def table_name(self) -> str:
        """The name of the store's table, which is that of its stack."""
        return self.scope.settings.stack_name

    @property
    def region(self) -> str | None:
        """The AWS region that the repository was opened with."""
        return self.scope.settings.region

    @property
    def endpoint_url(self) -> str | None:
        """The endpoint that the repository was opened with."""
        return self.scope.settings.endpoint_url

    @property
    def capabilities(self) -> BackendCapabilities:
        """The capabilities of the store."""
        return self.scope.store.capabilities

    def get_cache_stats(self) -> CacheStats:
        """Return how often the configuration cache was hit and missed, its size, and whether calls
        to the store are made (`breaker`)."""
        local, store = self.scope.local, self.scope.store
        return replace(
            local.config_cache.stats(),
            local_rejections=local.refusals.recalled[self.namespace_id],
            breaker=store.breaker_state if isinstance(store, HasBreaker) else "closed",
        )

    def get_stats(self) -> LimiterStats:
        """Return how the acquires of this namespace ended in this process, and what they needed. No
        call is made."""
        store, counts = self.scope.store, self.scope.local.counts
        return LimiterStats(
            counts.admitted,
            counts.refused_acquires,
            counts.waited,
            counts.degraded,
            counts.unavailable,
            dict(counts.refused),
            self.get_cache_stats(),
            store.traffic() if isinstance(store, CountsTraffic) else StoreTraffic(),
            counts.lost,
            counts.batches,
            counts.batched,
        )

    def listen(self, listener: Listener) -> None:
        """Tell a listener of the acquires in this process from now on: those of all namespaces of
        this repository."""
        self.scope.local.listeners.add(listener)

    def _multiplier(self, chosen: int | None) -> int:
        """Return the multiplier that was chosen, else this repository's own."""
        multiplier = self.scope.settings.bucket_ttl_multiplier if chosen is None else chosen
        check_multiplier(multiplier)
        return multiplier

    def _scope_of(self, record: NamespaceRecord, bucket_ttl_multiplier: int) -> Scope:
        """Return a scope for another namespace of the store.

        State that is keyed by bucket addresses is shared, since an address names its namespace. The
        configuration cache is new, and so are the reads that fill it: a read that two namespaces
        shared would give one of them the limits of the other.
        """
        scope = self.scope
        ttl_seconds = scope.local.config_cache.ttl_seconds
        cache = ConfigCache(ttl_seconds, registered_at_ms=scope.io.now_ms())
        return replace(
            scope,
            namespace_id=record.namespace_id,
            namespace_name=record.name,
            settings=replace(scope.settings, bucket_ttl_multiplier=bucket_ttl_multiplier),
            local=replace(
                scope.local, config_cache=cache, config_reads=SingleFlight(), counts=AcquireCounts()
            ),
        )
