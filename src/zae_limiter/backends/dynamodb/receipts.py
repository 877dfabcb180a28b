"""Receipts in DynamoDB, one item each.

They are spread over partitions of their own and are in no index, so that any number of them can be
written at once, and no list pages through them.

rev      the revision: what a swap compares
content  the receipt as text
ttl      when DynamoDB may drop it
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.bucket import BucketAddress
from ...core.receipts import Receipt, ReceiptKey, ReceiptSwap, StaleReceipt
from ...core.writes import Outcome, Write
from ..receipt_text import decode_receipt, encode_receipt
from . import schema
from .bucket_writes import ALL_OLD
from .buckets import DynamoBuckets
from .expressions import IS_NEW, Field, request_fields
from .item_reader import ItemReader
from .table import Table
from .wire.errors import ConditionFailed, Reason
from .wire.values import Item, to_item

_REVISION = Field("rev")


class DynamoReceipts:
    """The receipts of a table."""

    def __init__(self, table: Table, buckets: DynamoBuckets) -> None:
        self._table = table
        self._buckets = buckets

    async def read(self, key: ReceiptKey) -> Receipt | None:
        item = await self._table.get(schema.key(*_key_text(key)), consistent=True)
        return _decoded(key, item)

    async def swap(
        self, swap: ReceiptSwap, writes: Sequence[tuple[BucketAddress, Write]] = ()
    ) -> list[Outcome] | StaleReceipt:
        put, key = _putting(self._table.name, swap), swap.after.key
        if writes:
            token = swap.after.revision
            answer = await self._buckets.write_beside(writes, {"Put": put}, token)
            if isinstance(answer, Reason):
                return StaleReceipt(_decoded(key, answer.item))
            return answer
        try:
            await self._table.call("PutItem", put)
        except ConditionFailed as refusal:
            return StaleReceipt(_decoded(key, refusal.item))
        return []


def _key_text(key: ReceiptKey) -> tuple[str, str]:
    return schema.pk_receipt(key.namespace_id, key.name), key.name


def _putting(table_name: str, swap: ReceiptSwap) -> dict[str, Any]:
    """Return the parameters of a `PutItem`. A receipt that refuses comes back."""
    receipt, before = swap.after, swap.before
    pk, sk = _key_text(receipt.key)
    values = {
        "PK": pk,
        "SK": sk,
        _REVISION: receipt.revision,
        "content": encode_receipt(receipt),
        schema.TTL_ATTRIBUTE: math.ceil(receipt.drops_at_ms / 1000),
    }
    condition = IS_NEW if before is None else [_REVISION.equals(before.revision)]
    fields = request_fields(condition)
    return {"TableName": table_name, "Item": to_item(values), **fields, **dict([ALL_OLD])}


def _decoded(key: ReceiptKey, item: Item | None) -> Receipt | None:
    if not item:
        return None
    reader = ItemReader(item)
    return decode_receipt(key, reader.value(_REVISION), reader.value("content"))
