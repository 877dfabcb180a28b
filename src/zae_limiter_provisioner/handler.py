"""The function that Lambda calls, for CloudFormation or for a caller of its own.

CloudFormation may deliver a request twice: an apply that finds its work done changes nothing. A
deletion is carried out only for the resource that an apply made: what CloudFormation deletes after
a creation that failed has another id, and the limits that were there before stay.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from zae_limiter.core.exceptions import ZAELimiterError
from zae_limiter.runtime.blocking import run

from .requests import (
    physical_id,
    read_direct_request,
    read_resource_request,
)
from .response import Outcome, send_outcome
from .work import OutOfTimeError, Provisioner, apply_resource, counts_to_data

_LOG = logging.getLogger("zae_limiter.provisioner")
_NO_TIME_LIMIT_MS = 10**9


def on_event(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Apply declared limits, and answer."""
    remaining_ms = getattr(context, "get_remaining_time_in_millis", lambda: _NO_TIME_LIMIT_MS)
    if "RequestType" not in event:
        return _called(event, remaining_ms)
    outcome = _provisioned(event, remaining_ms)
    send_outcome(event, outcome)
    return {"PhysicalResourceId": outcome.physical_id, "Reason": outcome.reason}


def _called(event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> dict[str, Any]:
    table_name = os.environ["TABLE_NAME"]
    request = read_direct_request(event, table_name)
    provisioner = opened(table_name)
    if request.action == "plan":
        plan = run(provisioner.plan(request))
        changes = [
            {"action": each.action, "path": each.path, "drift": each.drift or None}
            for each in plan.changes
        ]
        return {"status": "planned", "changes": changes, "conflicts": list(plan.conflicts)}
    counts = run(provisioner.apply(request, remaining_ms))
    return {"status": "applied", **counts_to_data(counts)}


def _provisioned(event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> Outcome:
    """Carry out a request. Whatever goes wrong is an outcome: CloudFormation would wait for an
    hour for an answer that never comes."""
    try:
        return _applied(event, remaining_ms)
    except (ZAELimiterError, OutOfTimeError) as error:
        _LOG.warning("%s failed: %s", event["RequestType"], error)
        return Outcome(_known_id(event), f"{error}")
    except Exception as error:
        _LOG.exception("%s failed", event["RequestType"])
        return Outcome(_known_id(event), f"{type(error).__name__}: {error}")


def _applied(event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> Outcome:
    table_name = os.environ["TABLE_NAME"]
    if event["RequestType"] == "Delete" and not _is_ours(event, table_name):
        return Outcome(_known_id(event))
    request = read_resource_request(event, table_name)
    own_id = physical_id(table_name, request.namespace)
    if request.action == "delete" and own_id != event["PhysicalResourceId"]:
        return Outcome(_known_id(event))
    counts = run(apply_resource(opened(table_name), request, remaining_ms))
    return Outcome(own_id, data=counts_to_data(counts))


def _is_ours(event: Mapping[str, Any], table_name: str) -> bool:
    """Whether an apply has made the resource: its id begins with the table and ends as ours do."""
    prefix, suffix = physical_id(table_name, " ").split(" ")
    known = str(event.get("PhysicalResourceId", ""))
    return known.startswith(prefix) and known.endswith(suffix)


def _known_id(event: Mapping[str, Any]) -> str:
    """Return the id that CloudFormation knows, or one that is never deleted."""
    return str(event.get("PhysicalResourceId") or f"{event['LogicalResourceId']}/not-made")


@lru_cache(maxsize=1)
def opened(table_name: str) -> Provisioner:
    """Open the table once for all requests of this process."""
    return Provisioner.open(table_name)
