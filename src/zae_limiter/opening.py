"""This module opens a repository: it has every option, its default and its check."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict, cast

from .backends.dynamodb.url import dynamodb_url
from .backends.store_url import TRANSPORTS, USUAL_FAILURES, OpenRequest, StoreUrl
from .backends.urls import parse_url
from .core.exceptions import InfrastructureError, ValidationError, ZAELimiterError
from .deployed import update_lambda
from .flows.acquire.refusal_cache import (
    DEFAULT_REFUSAL_TTL_SECONDS,
    MAX_REMEMBERED,
    RefusalCache,
)
from .flows.admin import namespaces
from .flows.admin.versions import heed_settings, record_lambda, require_compatible
from .flows.config.cache import ConfigCache
from .flows.scope import (
    DEFAULT_TTL_MULTIPLIER,
    MAX_IMAGES,
    LocalState,
    Scope,
    Settings,
)
from .local.bounded import Bounded
from .naming import (
    DEFAULT_STACK_NAME,
    STACK_ENV_VAR,
    resolve_namespace_name,
    resolve_stack_name,
)
from .ports.clock import Clock
from .ports.io import Io
from .ports.repository_protocol import (
    BucketImages,
    NamespaceRecord,
    RepositoryProtocol,
    ShowsBuckets,
)

logger = logging.getLogger("zae_limiter")
MAX_TTL_MULTIPLIER = 1_000_000
_MOST_REFUSALS = 1_000_000
_MOST_FAILURES = 1_000
_NAME_A_STORE = (
    "name a store: url= (such as sqlite:///limits.db), ZAEL_URL, or stack=."
    f" Without any, it is the stack '{DEFAULT_STACK_NAME}' on AWS."
)
# The names that PyPI's zae-limiter 0.17 has for options, and ours.
_OTHER_NAMES = {
    "rejection_cache_ttl": "refusal_cache_ttl",
    "rejection_cache_size": "refusal_cache_size",
}


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`: where the store is, and how the repository behaves."""

    url: str | None
    """The store, such as `sqlite:///limits.db`. Without it, `stack` or `ZAEL_URL` counts."""
    stack: str | None
    """The stack, and so the table, on DynamoDB. Without it, `ZAEL_STACK` counts."""
    region: str | None
    """The AWS region. Without it, the one of the environment or profile."""
    endpoint_url: str | None
    """The address of a server that is not AWS."""
    transport: str | None
    """`wire` (the default) or `botocore`, for programs that patch or trace botocore."""
    connect_timeout: float | None
    """Seconds to wait for a connection; 2 without it."""
    read_timeout: float | None
    """Seconds to wait for the next byte of an answer; 4 without it."""
    total_timeout: float | None
    """Seconds that a call may wait for the store, with all retries; 5 without it."""
    breaker_failures: int
    """Failures in a row that open the breaker; 0 is never."""
    config_cache_ttl: float
    """Seconds for which stored limits are remembered."""
    bucket_ttl_multiplier: int
    """Times of the slowest refill after which an unused bucket expires."""
    coalesce: bool
    """Whether acquires of the process that meet at a bucket share one write."""
    linger_ms: float
    """Milliseconds that a write waits for others to share it."""
    refusal_cache_ttl: float
    """Seconds for which a refusal is remembered, at most."""
    refusal_cache_size: int
    """Refusals that are remembered, at most."""
    rejection_cache_ttl: float | None
    """Another name of `refusal_cache_ttl`."""
    rejection_cache_size: int | None
    """Another name of `refusal_cache_size`."""
    clock: Clock | None
    """A clock for tests, such as `zae_limiter.testing.ManualClock`."""


class OpenOptions(ConnectOptions, total=False):
    """The options of `open`: those of `connect`, and what is created or updated."""

    create: bool
    """Whether a missing table is created at AWS, too."""
    auto_update: bool | None
    """Whether an older Lambda is updated. Without it, the stored setting counts."""


DEFAULT_OPTIONS: OpenOptions = {
    "url": None,
    "stack": None,
    "region": None,
    "endpoint_url": None,
    "create": False,
    "auto_update": None,
    "transport": None,
    "connect_timeout": None,
    "read_timeout": None,
    "total_timeout": None,
    "breaker_failures": USUAL_FAILURES,
    "config_cache_ttl": 60,
    "bucket_ttl_multiplier": DEFAULT_TTL_MULTIPLIER,
    "coalesce": True,
    "linger_ms": 0,
    "refusal_cache_ttl": DEFAULT_REFUSAL_TTL_SECONDS,
    "refusal_cache_size": MAX_REMEMBERED,
    "rejection_cache_ttl": None,
    "rejection_cache_size": None,
    "clock": None,
}


@dataclass(frozen=True, slots=True)
class Opening:
    """An opening is a store and a namespace to open, checked before any I/O."""

    store: StoreUrl
    namespace: str
    options: OpenOptions

    @property
    def is_named(self) -> bool:
        """Whether anybody has named a store. Otherwise it is the default stack."""
        given = (self.options["url"], self.options["stack"], self.options["endpoint_url"])
        return any(given) or any(os.environ.get(name) for name in ("ZAEL_URL", STACK_ENV_VAR))

    @property
    def clock(self) -> Clock | None:
        """The clock that the driver goes by; None is the system clock."""
        return self.options["clock"]


def check_opening(
    namespace: str | None, given: ConnectOptions, known: type[ConnectOptions] = OpenOptions
) -> Opening:
    """Check the options that were given, and fill in the others, from the environment too."""
    unknown = given.keys() - known.__annotations__.keys()
    if unknown:
        method = "open" if known is OpenOptions else "connect"
        raise TypeError(f"{method}() got an unexpected keyword argument {min(unknown)!r}")
    options: OpenOptions = {**DEFAULT_OPTIONS, **_in_our_names(given)}
    _check_number("config_cache_ttl", options["config_cache_ttl"], 86_400)
    check_multiplier(options["bucket_ttl_multiplier"])
    for field in ("coalesce", "create"):
        if not isinstance(options[field], bool):
            raise ValidationError(field, options[field], "must be true or false")
    if options["auto_update"] not in (None, True, False):
        raise ValidationError("auto_update", options["auto_update"], "must be true or false")
    if options["transport"] not in (None, *TRANSPORTS):
        reason = f"must be one of {', '.join(TRANSPORTS)}"
        raise ValidationError("transport", options["transport"], reason)
    check_clock(options["clock"])
    _check_number("linger_ms", options["linger_ms"], 1000)
    _check_number("refusal_cache_ttl", options["refusal_cache_ttl"], 60)
    size = options["refusal_cache_size"]
    if type(size) is not int or not 0 < size <= _MOST_REFUSALS:
        reason = f"must be an integer from 1 to {_MOST_REFUSALS}"
        raise ValidationError("refusal_cache_size", size, reason)
    store = _choose_store(options, os.environ)
    return Opening(store, resolve_namespace_name(namespace), options)


def _in_our_names(given: ConnectOptions) -> ConnectOptions:
    """Return the options by our names alone."""
    named: dict[str, Any] = dict(given)
    for other, ours in _OTHER_NAMES.items():
        value = named.pop(other, None)
        if value is not None:
            if ours in named:
                raise ValidationError(other, value, f"is another name of {ours}: give one of them")
            named[ours] = value
    return cast(ConnectOptions, named)


def _check_number(field: str, value: object, maximum: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        raise ValidationError(field, value, f"must be a number from 0 to {maximum}")


def check_clock(clock: object) -> None:
    """Refuse a clock that lacks the methods of one."""
    if clock is not None and not isinstance(clock, Clock):
        raise ValidationError("clock", clock, "must have the methods now_ms and pass_time")


def check_multiplier(value: object) -> None:
    """Refuse a `bucket_ttl_multiplier` that is no integer, or beyond reason."""
    if type(value) is not int:
        raise ValidationError("bucket_ttl_multiplier", value, "must be an integer")
    if abs(value) > MAX_TTL_MULTIPLIER:
        reason = f"must be at most {MAX_TTL_MULTIPLIER}"
        raise ValidationError("bucket_ttl_multiplier", value, reason)


def _choose_store(options: OpenOptions, environment: Mapping[str, str]) -> StoreUrl:
    """Return the store of the URL, else of `ZAEL_URL`, else the table of a stack."""
    url, stack = options["url"], options["stack"]
    region, endpoint_url = options["region"], options["endpoint_url"]
    chosen = url or (None if stack else environment.get("ZAEL_URL"))
    if chosen:
        for field, value in (("stack", stack), ("region", region), ("endpoint_url", endpoint_url)):
            if value:
                origin = "url=" if url else "ZAEL_URL"
                raise ValidationError(field, value, f"the store is named by {origin} already")
    else:
        chosen = dynamodb_url(resolve_stack_name(stack), region, endpoint_url)
    found = parse_url(chosen).with_timeouts(
        options["connect_timeout"], options["read_timeout"], options["total_timeout"]
    )
    failures = options["breaker_failures"]
    if type(failures) is not int or not 0 <= failures <= _MOST_FAILURES:
        reason = f"must be an integer from 0 (no breaker) to {_MOST_FAILURES}"
        raise ValidationError("breaker_failures", failures, reason)
    return replace(found, breaker_failures=failures)


async def open_scope(
    opening: Opening, io: Io, *, blocking: bool, create: bool
) -> tuple[Scope, str]:
    """Return the scope of an opening, created if `create` says so, and the name of its
    namespace."""
    store: RepositoryProtocol | None = None
    options = opening.options
    try:
        request = OpenRequest(create, blocking, options["create"], options["transport"])
        store = await opening.store.open(io, request)
        require_compatible(store, opening.store.name)
        record = await _namespace(opening, store, io, create=create)
        scope = first_scope(opening, store, io, record)
        if await heed_settings(scope, options["auto_update"]) and create:
            await _update_lambda(scope)
    except BaseException as error:
        await (io.close() if store is None else close_store(store, io))
        if isinstance(error, ZAELimiterError) and not opening.is_named:
            raise _unnamed(error) from (error.__cause__ or error)
        raise
    return scope, record.name


def _unnamed(error: ZAELimiterError) -> ZAELimiterError:
    """Return the error of a newcomer who has named no store: nobody expects a region to be missing
    who has not heard of AWS."""
    if isinstance(error, ValidationError) and error.field == "region":
        return ValidationError("url", None, f"{_NAME_A_STORE} No region is set for that, either")
    error.add_note(_NAME_A_STORE)
    return error


async def _update_lambda(scope: Scope) -> None:
    """Update the deployed Lambda. A client that may not do so works with the older one."""
    settings = scope.settings
    place = (settings.stack_name, settings.region, settings.endpoint_url)
    try:
        await scope.io.offload(lambda: update_lambda(*place))
    except InfrastructureError as error:
        logger.warning("The Lambda of %s was not updated: %s", settings.stack_name, error)
        return
    await record_lambda(scope)


async def _namespace(
    opening: Opening, store: RepositoryProtocol, io: Io, *, create: bool
) -> NamespaceRecord:
    if create:
        return await namespaces.find_or_register(store, io, opening.namespace)
    return await namespaces.find(store, opening.namespace)


async def close_store(store: RepositoryProtocol, io: Io) -> None:
    """Close the store, and end the driver's threads."""
    await store.close()
    await io.close()


def first_scope(
    opening: Opening, store: RepositoryProtocol, io: Io, record: NamespaceRecord
) -> Scope:
    options, url = opening.options, opening.store
    return Scope(
        store,
        io,
        record.namespace_id,
        Settings(
            options["coalesce"],
            options["linger_ms"] / 1000,
            options["bucket_ttl_multiplier"],
            url.name,
            url.region,
            url.endpoint_url,
            url.patience_s,
        ),
        LocalState(
            ConfigCache(options["config_cache_ttl"], registered_at_ms=io.now_ms()),
            images=_images(store),
            refusals=RefusalCache(options["refusal_cache_ttl"], options["refusal_cache_size"]),
        ),
        record.name,
    )


def _images(store: RepositoryProtocol) -> BucketImages:
    return store.images if isinstance(store, ShowsBuckets) else Bounded(MAX_IMAGES)
