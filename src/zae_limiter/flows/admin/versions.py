"""The versions of a deployment are compared with the client's when a store is opened."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

from ..._version import __version__
from ...core.exceptions import IncompatibleSchemaError, StoredDataError, VersionMismatchError
from ...core.hierarchy import SYSTEM_SLOT
from ...core.models import LimiterConfig
from ...core.versions import (
    CURRENT_SCHEMA_VERSION,
    CompatibilityResult,
    InfrastructureVersion,
    check_compatibility,
    parse_version,
)
from ...ports.deployment import DeployedStore, VersionRecord
from ...ports.repository_protocol import RepositoryProtocol
from ..scope import Scope
from .limits import get_config

logger = logging.getLogger("zae_limiter")


# PyPI's package raises the oldest client to one of these when a table begins to use schedules,
# quotas, soft limits, bypasses or moves to another parent, none of which is heeded here.
_FOREIGN_FEATURES = (parse_version("0.15.0"), parse_version("0.17.99"))


class Comparison(NamedTuple):
    """A version record, and the result of comparing it with this client."""

    record: VersionRecord
    result: CompatibilityResult

    @property
    def is_equal(self) -> bool:
        """Whether schema and Lambda are exactly of the client's versions."""
        return self.record.schema_version == CURRENT_SCHEMA_VERSION and (
            self.record.lambda_version in (None, __version__)
        )


def compare(record: VersionRecord) -> Comparison:
    """Compare a version record with this client."""
    parts = InfrastructureVersion(
        record.schema_version, record.lambda_version, None, record.client_min_version
    )
    try:
        return Comparison(record, check_compatibility(__version__, parts))
    except ValueError as error:
        raise StoredDataError("the version record", str(error)) from error


def require_compatible(store: RepositoryProtocol, stack_name: str) -> None:
    """Raise an error if this client must not use the table, before anything is written to it."""
    record = _record_of(store)
    if record is None:
        return
    found = compare(record)
    if found.result.requires_schema_migration:
        raise IncompatibleSchemaError(
            __version__, record.schema_version, f"Table '{stack_name}': {found.result.message}"
        )
    if not found.result.is_compatible:
        raise _mismatch(stack_name, found)
    if _FOREIGN_FEATURES[0] <= parse_version(record.client_min_version) <= _FOREIGN_FEATURES[1]:
        logger.warning(
            "%s uses features of PyPI's zae-limiter %s that this client does not heed",
            stack_name,
            record.client_min_version,
        )


def require_deployable(
    record: VersionRecord, stack_name: str, *, allow_downgrade: bool = False
) -> None:
    """Raise an error if this client must not deploy to the table: its schema or its oldest client
    is newer than this client, or its Lambda is, unless a downgrade is allowed. A table of an older
    schema may be deployed to: it is migrated afterwards."""
    found = compare(record)
    if found.result.requires_client_upgrade:
        raise _mismatch(stack_name, found)
    if record.lambda_version is None or allow_downgrade:
        return
    if parse_version(record.lambda_version).release > parse_version(__version__).release:
        told = (
            f"Lambda {record.lambda_version} is newer than client {__version__}: upgrade the"
            " client, or allow the downgrade (--allow-downgrade)"
        )
        newer = replace(found.result, message=told)
        raise _mismatch(stack_name, found._replace(result=newer))


def _record_of(store: RepositoryProtocol) -> VersionRecord | None:
    return store.opened_version if isinstance(store, DeployedStore) else None


async def heed_settings(scope: Scope, auto_update: bool | None) -> bool:
    """Compare versions as strictly as the stored settings say, and return whether the Lambda is to
    be updated.

    `auto_update` is the caller's wish; without one, the stored setting counts. With neither, an
    older Lambda is reported and stays: it may be another package's. Where `strict_version` is
    stored, any difference is an error.
    """
    record = _record_of(scope.store)
    if record is None or compare(record).is_equal:
        return False
    found, stack_name = compare(record), scope.settings.stack_name
    stored = await get_config(scope, SYSTEM_SLOT) or LimiterConfig()
    wish = stored.auto_update if auto_update is None else auto_update
    needs_update = found.result.requires_lambda_update
    if stored.strict_version or (needs_update and wish is False):
        raise _mismatch(stack_name, found, can_auto_update=needs_update)
    if needs_update:
        logger.info("%s: %s", stack_name, found.result.message)
    return needs_update and wish is True


async def record_lambda(scope: Scope) -> None:
    """Record that the Lambda has this version's code."""
    assert isinstance(scope.store, DeployedStore)
    known = await scope.store.versions.read()
    if known is not None:
        author = f"client:{__version__}"
        changed = replace(known, lambda_version=__version__, updated_by=author)
        await scope.store.versions.write(changed)


def _mismatch(
    stack_name: str, found: Comparison, *, can_auto_update: bool = False
) -> VersionMismatchError:
    record = found.record
    told = found.result.message or (
        f"schema {record.schema_version} and Lambda {record.lambda_version} are not those of client"
        f" {__version__} (schema {CURRENT_SCHEMA_VERSION}), and strict_version is set"
    )
    return VersionMismatchError(
        __version__,
        record.schema_version,
        record.lambda_version,
        f"Table '{stack_name}': {told}",
        can_auto_update,
    )
