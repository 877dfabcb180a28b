"""Receipts as text, for stores that keep text."""

from __future__ import annotations

import json
from typing import Any

from ..core.bucket import BucketAddress
from ..core.exceptions import StoredDataError, ValidationError
from ..core.limit import Limit, LimitSet
from ..core.planner import Intent
from ..core.receipts import Receipt, ReceiptEntry, ReceiptKey, ReceiptState
from .damage import check_stored_numbers

_DAMAGE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    ValidationError,
)


def encode_receipt(receipt: Receipt) -> str:
    """Return everything but key and revision."""
    content = {
        "lease": receipt.lease_id,
        "entity": receipt.entity_id,
        "resource": receipt.resource,
        "wanted": dict(receipt.wanted_milli),
        "entries": [_entry_values(entry) for entry in receipt.entries],
        "charges": list(receipt.charges),
        "expires": receipt.expires_at_ms,
        "ends": receipt.ends_by_ms,
        "holders": sorted(receipt.holders),
        "state": receipt.state.value,
        "ender": receipt.ended_by,
        "own": receipt.has_own_limits,
    }
    return json.dumps(content, separators=(",", ":"))


def _entry_values(entry: ReceiptEntry) -> list[Any]:
    _, entity_id, resource, shard = entry.address
    intents = [_intent_values(intent) for intent in entry.intents]
    return [entity_id, resource, shard, dict(entry.charged_milli), entry.acquires, intents]


def _intent_values(intent: Intent) -> list[Any]:
    limits = [
        [limit.name, limit.capacity, limit.refill_amount, limit.refill_period_seconds]
        for limit in intent.limits.limits
    ]
    return [limits, intent.ttl_seconds, intent.parent_id, intent.cascade, intent.metered]


def decode_receipt(key: ReceiptKey, revision: object, text: object) -> Receipt:
    """Return the receipt that was encoded, or raise `StoredDataError`."""
    try:
        if not isinstance(revision, str) or not isinstance(text, str):
            raise ValueError("revision and content must be text")
        return _decode(key, revision, json.loads(text))
    except _DAMAGE as error:
        raise StoredDataError(f"receipt {key.name}", str(error)) from error


def _decode(key: ReceiptKey, revision: str, content: dict[str, Any]) -> Receipt:
    receipt = Receipt(
        key,
        revision,
        _text(content["lease"]),
        _text(content["entity"]),
        _text(content["resource"]),
        _amounts(content["wanted"]),
        tuple(_entry(key.namespace_id, values) for values in content["entries"]),
        tuple(map(_text, content["charges"])),
        _integer(content["expires"]),
        _integer(content["ends"]),
        frozenset(map(_text, content["holders"])),
        ReceiptState(content["state"]),
        _text(content["ender"]),
        bool(content["own"]),
    )
    if not receipt.entries and receipt.state is not ReceiptState.RETURNED:
        raise ValueError("nothing was charged")
    return receipt


def _entry(namespace_id: str, values: list[Any]) -> ReceiptEntry:
    entity_id, resource, shard, charged_milli, acquires, intents = values
    address = BucketAddress(namespace_id, _text(entity_id), _text(resource), _integer(shard))
    if not intents:
        raise ValueError("an entry has no limits")
    stamps = tuple(map(_intent, intents))
    return ReceiptEntry(address, _amounts(charged_milli), _integer(acquires), stamps)


def _intent(values: list[Any]) -> Intent:
    numbers, ttl_seconds, parent_id, cascade, metered = values
    limits = LimitSet.of([Limit(*each) for each in numbers])
    expiry = None if ttl_seconds is None else _integer(ttl_seconds)
    parent = None if parent_id is None else _text(parent_id)
    return Intent(limits, {}, 0, expiry, parent, bool(cascade), bool(metered))


def _amounts(values: dict[str, Any]) -> dict[str, int]:
    return {name: _integer(amount) for name, amount in values.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _integer(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    check_stored_numbers([value])
    return value
