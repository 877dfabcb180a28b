"""Records of the table's stream, decoded: changes of bucket items, and audit events that went.

A record has the shape that Lambda delivers or the shape that `GetRecords` answers with:

                                  Lambda                    GetRecords of boto3
    ApproximateCreationDateTime   seconds since the epoch   a datetime
    eventSourceARN                names the stream          is missing
    userIdentity                  principalId               PrincipalId

Records of other items tell nothing here. A record that cannot be read is logged with its key,
counted and passed over: raised as an error, it would stop the stream for everybody.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ...core.audit import AuditEvent
from ...core.bucket import Bucket, BucketAddress
from ...core.changes import AuditRemoval, BucketChange, ChangeBatch
from ...core.exceptions import StoredDataError
from ..damage import check_stored_numbers
from .bucket_codec import address_of, decode_bucket_item
from .codec import decode_event_item
from .schema import parse_namespace, sequence_text, sk_state
from .wire.values import Item

logger = logging.getLogger("zae_limiter")

StreamRecord = Mapping[str, Any]
_SEQUENCE_NUMBER = re.compile("[0-9]{1,40}")
# The year 3000.
_LAST_MS = 32_503_680_000_000
_TTL_SERVICE = "dynamodb.amazonaws.com"


def decode_records(records: Iterable[StreamRecord], stream_label: str = "") -> ChangeBatch:
    """Return what the records tell. `stream_label` is the label of the stream that they are from,
    for records that do not name it themselves."""
    buckets: list[BucketChange] = []
    removals: list[AuditRemoval] = []
    skipped = 0
    for record in records:
        try:
            told = _decode(record, stream_label)
        except Exception as error:
            skipped += 1
            logger.error("Record %s was passed over: %s", _name(record), error)
            continue
        if isinstance(told, BucketChange):
            buckets.append(told)
        elif told is not None:
            removals.append(told)
    return ChangeBatch(tuple(buckets), tuple(removals), skipped)


def label_of(stream_arn: str) -> str:
    """Return the label at the end of a stream's ARN. Of two streams of a table the later one has
    the greater label."""
    return stream_arn.rpartition("/")[2]


def _decode(record: StreamRecord, stream_label: str) -> BucketChange | AuditRemoval | None:
    change = record["dynamodb"]
    pk, sk = change["Keys"]["PK"]["S"], change["Keys"]["SK"]["S"]
    _, _, rest = pk.partition("/")
    if rest.startswith("BUCKET#") and sk == sk_state():
        return _bucket_change(record, change, address_of(pk), stream_label)
    if rest.startswith("AUDIT#") and record["eventName"] == "REMOVE":
        return _audit_removal(record, change, pk)
    return None


def _bucket_change(
    record: StreamRecord, change: StreamRecord, address: BucketAddress, stream_label: str
) -> BucketChange:
    record_id = number_of(change)
    label = label_of(record["eventSourceARN"]) if "eventSourceARN" in record else stream_label
    if not label:
        # Counted under no label, it would be counted again under the right one.
        raise ValueError("nothing tells which stream the record is from")
    before, after = _images(record["eventName"], change, address)
    return BucketChange(
        address,
        sequence_text(label, record_id),
        written_ms(change),
        before,
        after,
        record_id,
    )


def _images(
    event: str, change: StreamRecord, address: BucketAddress
) -> tuple[Bucket | None, Bucket | None]:
    """A write needs both images, or it would be counted as a new item's. An item that went needs
    none: what it had consumed was counted when it did."""
    if event == "REMOVE":
        return None, None
    if event not in ("INSERT", "MODIFY"):
        raise ValueError(f"there is no event {event!r}")
    before = None if event == "INSERT" else decode_bucket_item(address, change["OldImage"])
    after = decode_bucket_item(address, change["NewImage"])
    # Counted, a damaged number of acquires would make the whole snapshot unreadable.
    check_stored_numbers(image.acquires for image in (before, after) if image is not None)
    return before, after


def _audit_removal(record: StreamRecord, change: StreamRecord, pk: str) -> AuditRemoval:
    namespace_id, _ = parse_namespace(pk)
    identity = record.get("userIdentity") or {}
    principal = identity.get("principalId") or identity.get("PrincipalId")
    expired = principal == _TTL_SERVICE
    return AuditRemoval(
        namespace_id,
        _event(change["OldImage"], expired),
        expired,
        written_ms(change),
        number_of(change),
    )


def _event(image: Item, expired: bool) -> AuditEvent | str:
    """An expired event that is not of this package's form is kept as it is: the record is the last
    copy."""
    try:
        return decode_event_item(image)
    except StoredDataError:
        if not expired or not image:
            raise
        return json.dumps(image, sort_keys=True, default=str)


def number_of(change: StreamRecord) -> str:
    """Return the sequence number of a record. One beyond all bounds would make a snapshot refuse
    every record that follows."""
    number = change["SequenceNumber"]
    if not isinstance(number, str) or not _SEQUENCE_NUMBER.fullmatch(number):
        raise ValueError(f"{number!r} is no sequence number")
    return number


def written_ms(change: StreamRecord) -> int:
    """Return the time at which the store wrote, rounded down: DynamoDB tells whole seconds that are
    rounded down. If a finer time were rounded up into the next window, a write that two readers are
    told of in different precision would be counted in both windows."""
    at = change["ApproximateCreationDateTime"]
    if isinstance(at, bool):
        raise ValueError(f"{at} is no time")
    at_ms = math.floor(1000 * (at.timestamp() if isinstance(at, datetime) else float(at)))
    if not 0 <= at_ms < _LAST_MS:
        raise ValueError(f"there is no window at {at}")
    return at_ms


def _name(record: object) -> str:
    """Return the name of a record in messages: its number and key, as far as it has any."""
    change = record.get("dynamodb") if isinstance(record, Mapping) else None
    if not isinstance(change, Mapping):
        return "without a change"
    return f"{change.get('SequenceNumber')} of {change.get('Keys')}"
