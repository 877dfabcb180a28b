"""The stream's records that the aggregator is called with.

A filter costs nothing, a call does: records of usage snapshots and of configuration are passed
over. Keys begin with the namespace id, so that filters go by the sort key.
"""

from __future__ import annotations

import json
from typing import Any

from ..backends.dynamodb.schema import sk_audit, sk_state

_TTL_SERVICE = {"type": ["Service"], "principalId": ["dynamodb.amazonaws.com"]}
Pattern = dict[str, Any]


def stream_patterns(*, archives: bool) -> list[Pattern]:
    """Return the patterns: writes of bucket items, and audit events that expired if they are
    archived."""
    writes = _pattern(["INSERT", "MODIFY"], sk_state())
    expired = _pattern(["REMOVE"], {"prefix": sk_audit("")})
    return [writes, {**expired, "userIdentity": _TTL_SERVICE}] if archives else [writes]


def filter_criteria(*, archives: bool) -> dict[str, Any]:
    """Return the patterns as an event source mapping takes them."""
    return {
        "Filters": [
            {"Pattern": json.dumps(pattern, separators=(",", ":"))}
            for pattern in stream_patterns(archives=archives)
        ]
    }


def _pattern(events: list[str], sort_key: object) -> Pattern:
    return {"eventName": events, "dynamodb": {"Keys": {"SK": {"S": [sort_key]}}}}
