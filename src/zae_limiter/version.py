"""Versions and their comparison, for imports by path."""

from .core.versions import (
    CURRENT_SCHEMA_VERSION,
    CompatibilityResult,
    InfrastructureVersion,
    ParsedVersion,
    check_compatibility,
    get_schema_version,
    parse_version,
)

__all__ = [
    "CURRENT_SCHEMA_VERSION",
    "CompatibilityResult",
    "InfrastructureVersion",
    "ParsedVersion",
    "check_compatibility",
    "get_schema_version",
    "parse_version",
]
