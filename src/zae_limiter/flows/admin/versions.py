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
)
from ...ports.deployment import DeployedStore, VersionRecord
from ..scope import Scope
from .limits import get_config

logger = logging.getLogger("zae_limiter")


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


async def check_versions(scope: Scope, auto_update: bool | None) -> bool:
    """Raise an error if this client must not use the table. Return whether the Lambda is to be
    updated.

    `auto_update` is the caller's wish; without one, the stored setting counts. With neither, an
    older Lambda is reported and stays: it may be another package's. Where `strict_version` is
    stored, any difference is an error.
    """
    record = scope.store.opened_version if isinstance(scope.store, DeployedStore) else None
    if record is None:
        return False
    found = compare(record)
    if not found.result.is_compatible:
        raise _refusal(scope, found)
    if found.is_equal:
        return False
    stored = await get_config(scope, SYSTEM_SLOT) or LimiterConfig()
    wish = stored.auto_update if auto_update is None else auto_update
    needs_update = found.result.requires_lambda_update
    if stored.strict_version or (needs_update and wish is False):
        raise _mismatch(scope, found, can_auto_update=needs_update)
    if needs_update:
        logger.info("%s: %s", scope.settings.stack_name, found.result.message)
    return needs_update and wish is True


async def record_lambda(scope: Scope) -> None:
    """Record that the Lambda has this version's code."""
    assert isinstance(scope.store, DeployedStore)
    known = await scope.store.versions.read()
    if known is not None:
        author = f"client:{__version__}"
        changed = replace(known, lambda_version=__version__, updated_by=author)
        await scope.store.versions.write(changed)


def _refusal(scope: Scope, found: Comparison) -> IncompatibleSchemaError | VersionMismatchError:
    if not found.result.requires_schema_migration:
        return _mismatch(scope, found)
    return IncompatibleSchemaError(
        __version__,
        found.record.schema_version,
        f"Table '{scope.settings.stack_name}': {found.result.message}",
    )


def _mismatch(
    scope: Scope, found: Comparison, *, can_auto_update: bool = False
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
        f"Table '{scope.settings.stack_name}': {told}",
        can_auto_update,
    )
