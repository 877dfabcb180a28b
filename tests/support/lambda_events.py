"""Events as Lambda delivers them, made of records that a real stream delivered."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.support.servers.tables import OwnTable
from tests.support.stream_reading import read_stream


def lambda_event(table: OwnTable) -> dict[str, Any]:
    """All records of the table's stream in one event, as JSON that was written and read."""
    label, records = read_stream(table)
    return {"Records": json.loads(json.dumps([_lambda_record(r, label) for r in records]))}


def _lambda_record(record: dict[str, Any], label: str) -> dict[str, Any]:
    made = copy.deepcopy(record)
    at = made["dynamodb"]["ApproximateCreationDateTime"]
    made["dynamodb"]["ApproximateCreationDateTime"] = int(at.timestamp())
    made["eventSourceARN"] = f"arn:aws:dynamodb:us-east-1:1:table/t/stream/{label}"
    made["eventSource"] = "aws:dynamodb"
    return made


EXPIRED = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def audit_record(
    number: int, identity: dict[str, str] | None = EXPIRED, timestamp: str = "2024-03-09T10:00:00Z"
) -> dict[str, Any]:
    """The record of an audit event that went."""
    event_id = f"event-{number}"
    keys = {"PK": {"S": "ns-1/AUDIT#key-1"}, "SK": {"S": f"#AUDIT#{event_id}"}}
    image = {
        **keys,
        "event_id": {"S": event_id},
        "entity_id": {"S": "key-1"},
        "action": {"S": "limits_set"},
        "timestamp": {"S": timestamp},
        "principal": {"S": "admin"},
        "resource": {"S": "gpt-4"},
        "details": {"M": {"limits": {"L": [{"S": "rpm"}]}}},
    }
    record: dict[str, Any] = {
        "eventName": "REMOVE",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:1:table/t/stream/2024",
        "dynamodb": {
            "Keys": keys,
            "OldImage": image,
            "SequenceNumber": str(number),
            "ApproximateCreationDateTime": 1_718_000_000,
        },
    }
    return record if identity is None else {**record, "userIdentity": identity}
