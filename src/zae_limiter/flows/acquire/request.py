"""The request of a caller, and the charges it makes at each level: the entity's own bucket, and
those of its ancestors while each of them cascades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...core.bucket import BucketAddress
from ...core.exceptions import ValidationError
from ...core.hierarchy import MAX_LEVELS
from ...core.limit import MILLI, Limit, LimitSet, validate_limits
from ...core.receipts import ReceiptTerms
from ...core.validation import validate_consume, validate_identifier, validate_resource
from ..config.resolution import Resolution
from ..config.resolve import resolve
from ..scope import Scope
from .charge import Charge, LimitsFrom, intent_for, require_known


class Request(NamedTuple):
    """The wish of a caller to take tokens. Everything in it has been checked.

    `override`: the caller's own limits. `default`: the limiter's, where none are stored.
    `field`: what the caller calls the amounts. `speculative`: a write may come before a read.
    `receipt`: how long the charge is to be remembered in the store, if it is.
    """

    entity_id: str
    resource: str
    wanted_milli: Mapping[str, int]
    override: LimitSet | None = None
    default: LimitSet | None = None
    field: str = "consume"
    speculative: bool = True
    receipt: ReceiptTerms | None = None


def make_request(
    entity_id: str,
    resource: str,
    consume: Mapping[str, int],
    limits: Sequence[Limit] | None = None,
    default: LimitSet | None = None,
    field: str = "consume",
    speculative: bool = True,
) -> Request:
    """Check what the caller brought, before any I/O."""
    validate_identifier(entity_id)
    validate_resource(resource)
    wanted = validate_consume(consume, field)
    override = None if limits is None else LimitSet.of(validate_limits(limits))
    wanted_milli = {name: amount * MILLI for name, amount in wanted.items()}
    if override is not None:
        require_known(wanted_milli, override, field)
    return Request(entity_id, resource, wanted_milli, override, default, field, speculative)


async def plan_charges(scope: Scope, request: Request, acquires: int = 1) -> list[Charge]:
    """Make one charge for each level, the entity's own first."""
    planned: list[Charge] = []
    visited: list[str] = []
    entity_id = request.entity_id
    while True:
        resolution = await resolve(scope, entity_id, request.resource)
        limits = request.override or resolution.limits or request.default
        if limits is not None:
            planned.append(_charge(scope, request, entity_id, resolution, limits, acquires))
        elif not planned:
            raise _no_limits(request)
        if not resolution.cascade or resolution.parent_id is None:
            return planned
        visited.append(entity_id)
        entity_id = resolution.parent_id
        _refuse_endless(visited, entity_id)


def _charge(
    scope: Scope,
    request: Request,
    entity_id: str,
    resolution: Resolution,
    limits: LimitSet,
    acquires: int,
) -> Charge:
    is_leaf = entity_id == request.entity_id
    wanted_milli = request.wanted_milli
    if is_leaf:
        require_known(wanted_milli, limits, request.field)
    # A caller that brings limits equal to the stored ones wants them, even if those change.
    is_given = request.override is not None or limits is not resolution.limits
    return Charge(
        BucketAddress(scope.namespace_id, entity_id, request.resource),
        intent_for(scope, resolution, limits, wanted_milli, acquires),
        wanted_milli,
        is_leaf,
        LimitsFrom.CALLER if is_given else LimitsFrom.CACHE,
        request.speculative,
    )


def _refuse_endless(visited: list[str], entity_id: str) -> None:
    if entity_id not in visited and len(visited) < MAX_LEVELS:
        return
    path = " > ".join([*visited, entity_id])
    problem = (
        "the entities form a cycle"
        if entity_id in visited
        else f"cascades over more than {MAX_LEVELS} levels"
    )
    raise ValidationError("parent_id", entity_id, f"{problem}: {path}")


def _no_limits(request: Request) -> ValidationError:
    return ValidationError(
        "limits",
        request.entity_id,
        f"no limits are configured for entity '{request.entity_id}' and resource"
        f" '{request.resource}' at any level; set some (`set_system_defaults`,"
        " `zae-limiter system set-defaults`), or pass limits=",
    )
