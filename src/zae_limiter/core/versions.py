"""Versions of a client and of a deployment's parts, and whether they go together.

The package has a version, and so has the Lambda, which is built from the package. The schema of the
table has a version of its own, which changes only when the shape of stored records does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

CURRENT_SCHEMA_VERSION = "0.10.0"
UNKNOWN_SCHEMA_VERSION = "0.0.0"
# Tables from this version on have today's records, but buckets of an older shape may be among them:
# a client moves each when it needs it.
OLDEST_SCHEMA_VERSION = "0.9.0"

_VERSION = re.compile(
    r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?[-.]?([A-Za-z][0-9A-Za-z.-]*)?(?:\+.*)?", re.ASCII
)


@total_ordering
@dataclass(frozen=True, slots=True)
class ParsedVersion:
    """A version has three numbers and, before its release, the name of a stage."""

    major: int
    minor: int
    patch: int
    prerelease: str | None = None

    @property
    def release(self) -> tuple[int, int, int]:
        """The numbers alone."""
        return self.major, self.minor, self.patch

    def __str__(self) -> str:
        stage = "" if self.prerelease is None else f"-{self.prerelease}"
        return f"{self.major}.{self.minor}.{self.patch}{stage}"

    def __lt__(self, other: ParsedVersion) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[tuple[int, int, int], bool, str]:
        return self.release, self.prerelease is None, self.prerelease or ""


def parse_version(version_str: str) -> ParsedVersion:
    """Read a version such as `0.18.0`, `v1.2.3-rc1` or `0.18.1.dev3`."""
    found = _VERSION.fullmatch(version_str)
    if found is None:
        raise ValueError(f"{version_str!r} is no version such as 0.18.0")
    major, minor, patch, stage = found.groups()
    return ParsedVersion(int(major), int(minor), int(patch or 0), stage)


@dataclass(frozen=True, slots=True)
class InfrastructureVersion:
    """The versions of a deployment's parts."""

    schema_version: str
    lambda_version: str | None = None
    template_version: str | None = None
    client_min_version: str = "0.0.0"


@dataclass(frozen=True, slots=True)
class CompatibilityResult:
    """The result of comparing a client with a deployment."""

    is_compatible: bool
    requires_schema_migration: bool = False
    requires_lambda_update: bool = False
    requires_template_update: bool = False
    requires_client_upgrade: bool = False
    message: str = ""


def get_schema_version() -> str:
    """Return the version of the schema that this client writes."""
    return CURRENT_SCHEMA_VERSION


def is_on_the_way(schema_version: str) -> bool:
    """Return whether a table of this schema may hold buckets of an older shape. A version that
    cannot be read is none: comparing it reports that."""
    try:
        return parse_version(schema_version) < parse_version(CURRENT_SCHEMA_VERSION)
    except ValueError:
        return False


def check_compatibility(
    client_version: str, infra_version: InfrastructureVersion
) -> CompatibilityResult:
    """Compare a client with a deployment. Raises ValueError for a version that cannot be read."""
    client, schema = parse_version(client_version), parse_version(infra_version.schema_version)
    current, oldest = parse_version(CURRENT_SCHEMA_VERSION), parse_version(OLDEST_SCHEMA_VERSION)
    if client.release < parse_version(infra_version.client_min_version).release:
        return CompatibilityResult(
            False,
            requires_client_upgrade=True,
            message=f"client {client_version} is older than {infra_version.client_min_version},"
            " the oldest that the table lets in: upgrade the client",
        )
    if schema.major > current.major:
        return CompatibilityResult(
            False,
            requires_client_upgrade=True,
            message=f"schema {infra_version.schema_version} is newer than {CURRENT_SCHEMA_VERSION},"
            f" which client {client_version} knows: upgrade the client",
        )
    if schema < oldest:
        return CompatibilityResult(
            False,
            requires_schema_migration=True,
            message=f"schema {infra_version.schema_version} is older than {CURRENT_SCHEMA_VERSION}:"
            " stop all clients of older versions, then run `zae-limiter migrate`",
        )
    return _compare_lambda(client_version, infra_version)


def _compare_lambda(client_version: str, infra: InfrastructureVersion) -> CompatibilityResult:
    if infra.lambda_version is None:
        return CompatibilityResult(True)
    if parse_version(infra.lambda_version).release >= parse_version(client_version).release:
        return CompatibilityResult(True)
    return CompatibilityResult(
        True,
        requires_lambda_update=True,
        message=f"Lambda {infra.lambda_version} is older than client {client_version}:"
        " run `zae-limiter upgrade`",
    )
