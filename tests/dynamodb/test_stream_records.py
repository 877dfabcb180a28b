"""Records of a stream tell the same in every shape, and none of them stops the others."""

from __future__ import annotations

import logging
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from zae_limiter import Limit
from zae_limiter.backends.dynamodb.bucket_codec import bucket_key, encode_bucket_item
from zae_limiter.backends.dynamodb.codec import encode_event_item
from zae_limiter.backends.dynamodb.stream_records import decode_records, label_of
from zae_limiter.backends.dynamodb.wire.values import to_item
from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.bucket import BucketAddress, full_bucket, take_tokens
from zae_limiter.core.changes import AuditRemoval, BucketChange, ChangeBatch
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.windows import window_start

ADDRESS = BucketAddress("ns-1", "key", "gpt-4", 0)
BEFORE = full_bucket(LimitSet.of([Limit.per_minute("rpm", 60)]), 0, metered=True)
AFTER = take_tokens(BEFORE, {"rpm": 1000}, 1)
ARN = "arn:aws:dynamodb:us-east-1:1:table/limits/stream/2024-05-01T10:00:00.000"
LABEL = "2024-05-01T10:00:00.000"
AT = datetime(2024, 5, 1, 12, 0, 1, tzinfo=UTC)
AT_MS = 1_714_564_801_000
EVENT = AuditEvent("01HF", "2024-05-01T00:00:00Z", "limits_set", "key", "admin", "gpt-4", {"n": 1})


def bucket_record(event: str = "MODIFY", number: str = "123", **more: Any) -> dict[str, Any]:
    """A record as Lambda delivers it."""
    change: dict[str, Any] = {
        "ApproximateCreationDateTime": AT.timestamp(),
        "Keys": bucket_key(ADDRESS),
        "SequenceNumber": number,
    }
    if event != "REMOVE":
        change["NewImage"] = encode_bucket_item(ADDRESS, AFTER)
    if event != "INSERT":
        change["OldImage"] = encode_bucket_item(ADDRESS, BEFORE)
    return {"eventName": event, "eventSourceARN": ARN, "dynamodb": change | more}


def polled(record: dict[str, Any]) -> dict[str, Any]:
    """The same as `GetRecords` of boto3 answers with it."""
    copy = deepcopy(record)
    del copy["eventSourceARN"]
    copy["dynamodb"]["ApproximateCreationDateTime"] = AT
    if "userIdentity" in copy:
        copy["userIdentity"] = {k[0].upper() + k[1:]: v for k, v in copy["userIdentity"].items()}
    return copy


SEQUENCE = f"{LABEL}/{'0' * 37}123"
WANTED = BucketChange(ADDRESS, SEQUENCE, AT_MS, BEFORE, AFTER, "123")


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        ("INSERT", WANTED._replace(before=None)),
        ("MODIFY", WANTED),
        ("REMOVE", WANTED._replace(before=None, after=None)),
    ],
)
def test_records_of_lambda_and_of_polling_tell_the_same(event: str, wanted: BucketChange) -> None:
    record = bucket_record(event)
    assert decode_records([record]) == ChangeBatch((wanted,))
    assert decode_records([polled(record)], LABEL) == ChangeBatch((wanted,))


def test_a_time_in_fractions_of_a_second_is_in_the_window_of_its_second() -> None:
    last_s = int(datetime(2024, 5, 31, 23, 59, 59, tzinfo=UTC).timestamp())
    finer = datetime(2024, 5, 31, 23, 59, 59, 999_700, tzinfo=UTC)
    told = [last_s, last_s + 0.9997, finer]
    batch = decode_records(bucket_record(ApproximateCreationDateTime=at) for at in told)
    starts = {window_start("hourly", change.at_ms) for change in batch.buckets}
    assert starts == {datetime(2024, 5, 31, 23, tzinfo=UTC)}


def test_sequences_are_in_the_order_of_their_numbers() -> None:
    numbers = ["9", "10", "99999999999999999999", "4" * 38, "1" * 40]
    batch = decode_records(bucket_record(number=number) for number in numbers)
    sequences = [change.sequence for change in batch.buckets]
    assert sequences == sorted(sequences)
    later = decode_records([polled(bucket_record(number="1"))], "2024-06-01T10:00:00.000")
    assert later.buckets[0].sequence > sequences[-1]
    assert label_of(ARN) == LABEL


def audit_record(identity: dict[str, str] | None) -> dict[str, Any]:
    item = encode_event_item("ns-1", EVENT, 1)
    record: dict[str, Any] = {
        "eventName": "REMOVE",
        "eventSourceARN": ARN,
        "dynamodb": {
            "ApproximateCreationDateTime": AT.timestamp(),
            "Keys": {"PK": item["PK"], "SK": item["SK"]},
            "OldImage": item,
            "SequenceNumber": "7",
        },
    }
    return record | ({"userIdentity": identity} if identity else {})


@pytest.mark.parametrize(
    ("identity", "expired"),
    [
        ({"type": "Service", "principalId": "dynamodb.amazonaws.com"}, True),
        ({"type": "User", "principalId": "admin"}, False),
        (None, False),
    ],
)
def test_audit_events_that_went_tell_whether_their_lifetime_was_over(
    identity: dict[str, str] | None, expired: bool
) -> None:
    wanted = ChangeBatch(removals=(AuditRemoval("ns-1", EVENT, expired, AT_MS, "7"),))
    assert decode_records([audit_record(identity)]) == wanted
    assert decode_records([polled(audit_record(identity))]) == wanted


def keyed(pk: str, sk: str) -> dict[str, Any]:
    return bucket_record(Keys=to_item({"PK": pk, "SK": sk}))


FOREIGN = [
    keyed("ns-1/ENTITY#key", "#META"),
    keyed("ns-1/ENTITY#key", "#USAGE#gpt-4#2024-05"),
    keyed("ns-1/ENTITY#key", "#BUCKET#gpt-4"),
    keyed("ns-1/BUCKET#key#gpt-4#0", "#OP#1"),
    keyed("ns-1/RECEIPT#7", "KEY#order-1"),
    keyed("ns-1/RECEIPT#7", "LEASE#01HF"),
    keyed("no namespace", "#STATE"),
    {**audit_record(None), "eventName": "MODIFY"},
]


def test_records_of_other_items_tell_nothing() -> None:
    assert decode_records(FOREIGN) == ChangeBatch()


def damaged(**attributes: Any) -> dict[str, Any]:
    image = {**encode_bucket_item(ADDRESS, AFTER), **attributes}
    return bucket_record(NewImage={k: v for k, v in image.items() if v is not None})


def lacking(*path: str) -> dict[str, Any]:
    record = deepcopy(bucket_record())
    place: Any = record
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return record


POISON: dict[str, Any] = {
    "no mapping": "record",
    "nothing": None,
    "empty": {},
    "no change": lacking("dynamodb"),
    "no key": lacking("dynamodb", "Keys"),
    "no event": lacking("eventName"),
    "another event": bucket_record("TRUNCATE"),
    "no number": lacking("dynamodb", "SequenceNumber"),
    "a number that is too long": bucket_record(number="9" * 41),
    "a number of letters": bucket_record(number="z" * 40),
    "a number in other digits": bucket_record(number="\u0663"),
    "no stream": lacking("eventSourceARN"),
    "a flag for a time": bucket_record(ApproximateCreationDateTime=True),
    "no time": lacking("dynamodb", "ApproximateCreationDateTime"),
    "a time beyond all windows": bucket_record(ApproximateCreationDateTime=1e18),
    "no time at all": bucket_record(ApproximateCreationDateTime="soon"),
    "no old image": lacking("dynamodb", "OldImage"),
    "no new image": lacking("dynamodb", "NewImage"),
    "an image that is no mapping": bucket_record(NewImage="image"),
    "no refill time": damaged(rf=None),
    "a number that is none": damaged(b_rpm_tc={"N": "many"}),
    "text for a number": damaged(b_rpm_tk={"S": "1"}),
    "more acquires than can be": damaged(ac={"N": "9" * 38}),
    "no capacity": damaged(b_rpm_cp=None),
    "a shard that cannot be": keyed("ns-1/BUCKET#key#gpt-4#77", "#STATE"),
    "a shard with a leading zero": keyed("ns-1/BUCKET#key#gpt-4#00", "#STATE"),
    "a shard in other digits": keyed("ns-1/BUCKET#key#gpt-4#\u0660", "#STATE"),
    "a shard that is no number": keyed("ns-1/BUCKET#key#gpt-4#x", "#STATE"),
    "an audit event without an image": {
        **lacking("dynamodb", "OldImage"),
        "eventName": "REMOVE",
        "dynamodb": {**audit_record(None)["dynamodb"], "OldImage": {}},
    },
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_a_record_that_cannot_be_read_is_logged_and_passed_over(
    poison: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "zae_limiter"):
        batch = decode_records([bucket_record("INSERT"), poison, bucket_record(number="124")])
    assert [change.record_id for change in batch.buckets] == ["123", "124"]
    assert (batch.removals, batch.skipped) == ((), 1)
    (said,) = caplog.messages
    assert "was passed over" in said


def test_the_log_names_the_key_of_a_record_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    decode_records([POISON["a number that is none"]])
    assert "123" in caplog.text
    assert "ns-1/BUCKET#key#gpt-4#0" in caplog.text
