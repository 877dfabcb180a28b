"""Receipts that a store cannot read."""

from __future__ import annotations

import json

import pytest

from zae_limiter import Limit, StoredDataError
from zae_limiter.backends.receipt_text import decode_receipt, encode_receipt
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.planner import Intent
from zae_limiter.core.receipts import Receipt, ReceiptEntry, ReceiptKey

KEY = ReceiptKey("n", "KEY#k")
LIMITS = LimitSet.of([Limit.per_minute("rpm", 10), Limit.per_day("tpd", 7, burst=9)])
INTENT = Intent(LIMITS, {}, 0, None, "org", True, metered=True)
ENTRY = ReceiptEntry(BucketAddress("n", "key", "api", 3), {"rpm": 1000}, 1, (INTENT, INTENT))
RECEIPT = Receipt(
    KEY, "r1", "l1", "key", "api", {"rpm": 1000}, (ENTRY,), ("r1",), 60_000, 30_000, frozenset("l")
)
OWN = RECEIPT._replace(has_own_limits=True)


@pytest.mark.parametrize("receipt", [RECEIPT, OWN])
def test_a_receipt_survives_being_written_as_text(receipt: Receipt) -> None:
    assert decode_receipt(KEY, "r1", encode_receipt(receipt)) == receipt


@pytest.mark.parametrize(
    "change",
    [
        {"state": "half"},
        {"ends": "soon"},
        {"expires": 10**40},
        {"wanted": {"rpm": 1.5}},
        {"holders": [1]},
        {"entries": [["key", "api", 0, {}, 1, []]]},
        {"entries": [["key", "api", 0, {}, 1, [[[["rpm", 0, 1, 1]], None, None, 0, 0]]]]},
        {"entries": 3},
    ],
)
def test_a_damaged_receipt_is_named_in_a_typed_error(change: dict[str, object]) -> None:
    text = json.dumps(json.loads(encode_receipt(RECEIPT)) | change)
    with pytest.raises(StoredDataError, match="receipt KEY#k"):
        decode_receipt(KEY, "r1", text)


@pytest.mark.parametrize("text", ["", "[]", "null", None, 7])
def test_text_that_is_no_receipt_is_a_typed_error(text: object) -> None:
    with pytest.raises(StoredDataError, match="receipt KEY#k"):
        decode_receipt(KEY, "r1", text)
