"""The permissions that each use of a stack needs, as IAM policy documents.

    acq, full, read            on every namespace of the table
    ns-acq, ns-full, ns-read   on the namespace whose id is the caller's tag `zael_namespace_id`
    aggregate                  for `zae-limiter aggregate`, which reads the stream
    aggregator                 for the Lambda, which does that, too
    provisioner                for the Lambda that applies declared limits

A transaction needs the permissions of the actions in it. Keys begin with the namespace id, so
that a condition on the leading key keeps tenants apart. A request that has no leading key, such as
a scan, would meet a condition on all of its leading keys: `Null` refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..backends.dynamodb.schema import RECEIPT_PREFIX, REGISTRY_ID, pk_stream, pk_system

Document = dict[str, Any]
Statement = dict[str, Any]
NAMESPACE_TAG = "zael_namespace_id"
_OWN = f"${{aws:PrincipalTag/{NAMESPACE_TAG}}}"
_READS = ("BatchGetItem", "GetItem", "Query")
_CHARGES = ("PutItem", "UpdateItem")
_DECLARES = ("ConditionCheckItem", "DeleteItem", *_CHARGES)
_WRITES = ("BatchWriteItem", *_DECLARES)
_REGISTRY = pk_system(REGISTRY_ID)
_BUCKETS = "BUCKET#*"
_RECEIPTS = f"{RECEIPT_PREFIX}*"


class Places(NamedTuple):
    """The ARNs of a stack's parts, or expressions for them."""

    table: Any
    indexes: Any
    stream: Any
    log_group: Any
    dead_letters: Any
    archive: Any
    provisioner_log: Any


def policy_documents(places: Places) -> dict[str, Document]:
    """Return the managed policies of a stack by component."""
    everywhere = [places.table, places.indexes]
    return {
        "acq": _document(
            _allow("Read", _READS, everywhere),
            _allow("Charge", _CHARGES, [places.table], keys=_charged("*")),
        ),
        "full": _document(
            _allow("Read", (*_READS, "DescribeTable", "Scan"), everywhere),
            _allow("Write", _WRITES, [places.table]),
        ),
        "read": _document(_allow("Read", (*_READS, "DescribeTable"), everywhere)),
        "ns-acq": _document(
            *_namespace_reads(everywhere),
            _allow("Charge", _CHARGES, [places.table], keys=_charged(_OWN)),
        ),
        "ns-full": _document(
            *_namespace_reads(everywhere),
            _allow("Write", _WRITES, [places.table], keys=[f"{_OWN}/*"]),
        ),
        "ns-read": _document(*_namespace_reads(everywhere)),
        "aggregate": _document(*aggregate_statements(places)),
    }


def _charged(namespace_id: str) -> list[str]:
    """Return the leading keys of what a charge writes."""
    return [f"{namespace_id}/{kind}" for kind in (_BUCKETS, _RECEIPTS)]


def _namespace_reads(everywhere: Sequence[Any]) -> Iterable[Statement]:
    """Yield reading of the caller's namespace, and of the registry, which has its name."""
    keys = [f"{_OWN}/*", _OWN, _REGISTRY, pk_stream()]
    yield _allow("Read", _READS, everywhere, keys=keys)


def aggregate_statements(places: Places) -> list[Statement]:
    """Return what a reader of the stream needs: usage, upkeep of buckets, and its checkpoints."""
    keys = ["*/ENTITY#*", f"*/{_BUCKETS}", pk_stream()]
    return [
        _allow("Read", (*_READS, "DescribeTable"), [places.table, places.indexes]),
        _allow("Count", _CHARGES, [places.table], keys=keys),
        _allow("Stream", ("DescribeStream", "GetRecords", "GetShardIterator"), [places.stream]),
        # This one takes no resource.
        _allow("List", ["ListStreams"], ["*"]),
    ]


def aggregator_document(places: Places, *, archives: bool, traces: bool) -> Document:
    """Return the policy of the Lambda: a reader of the stream that logs, reports and archives."""
    logs, letters, archive = [places.log_group], [places.dead_letters], [places.archive]
    statements = [
        *aggregate_statements(places),
        _statement("Log", ["logs:CreateLogStream", "logs:PutLogEvents"], logs),
        _statement("Report", ["sqs:SendMessage"], letters),
    ]
    if archives:
        statements.append(_statement("Archive", ["s3:PutObject"], archive))
    if traces:
        statements.append(_tracing())
    return _document(*statements)


def provisioner_document(places: Places, *, traces: bool) -> Document:
    """Return the policy of the Lambda that applies declared limits: it changes entities, limits and
    namespaces, and no buckets."""
    keys = [f"*/{kind}" for kind in ("ENTITY#*", "RESOURCE#*", "SYSTEM#", "AUDIT#*")]
    logs = ["logs:CreateLogStream", "logs:PutLogEvents"]
    statements = [
        _allow("Read", _READS, [places.table, places.indexes]),
        _allow("Declare", _DECLARES, [places.table], keys=keys),
        _statement("Log", logs, [places.provisioner_log]),
    ]
    if traces:
        statements.append(_tracing())
    return _document(*statements)


def _tracing() -> Statement:
    return _statement("Trace", ["xray:PutTelemetryRecords", "xray:PutTraceSegments"], ["*"])


def _document(*statements: Statement) -> Document:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(
    sid: str, operations: Iterable[str], resources: Sequence[Any], keys: Sequence[str] = ()
) -> Statement:
    actions = sorted(f"dynamodb:{operation}" for operation in operations)
    statement = _statement(sid, actions, resources)
    if keys:
        statement["Condition"] = {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(keys)},
            "Null": {"dynamodb:LeadingKeys": "false"},
        }
    return statement


def _statement(sid: str, actions: Sequence[str], resources: Sequence[Any]) -> Statement:
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
