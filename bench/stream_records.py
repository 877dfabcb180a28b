"""Records of a stream, as acquires make them: one token and 500, in turn by each entity."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

from zae_limiter import Limit
from zae_limiter.backends.dynamodb.bucket_codec import bucket_key, encode_bucket_item
from zae_limiter.backends.dynamodb.wire.values import Item
from zae_limiter.core.bucket import BucketAddress, full_bucket, take_tokens
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.validation import WCU

NAMESPACE, RESOURCE = "ns", "gpt-4"
# Now: a reader looks after bucket items only if their changes are recent.
_AT_S = int(time.time())
_LIMITS = LimitSet.of([Limit.per_minute("rpm", 6000), Limit.per_minute("tpm", 600_000)])
_TAKES_MILLI = {"rpm": 1000, "tpm": 500_000, WCU: 1250}
_IMAGES = 20_000


def entity_name(number: int) -> str:
    """The id of the entity that makes this record, and each that comes as many later."""
    return f"key-{number}"


def records(count: int, entities: int, first: int = 0) -> list[dict[str, Any]]:
    """So many records, as Lambda delivers them."""
    made = []
    for number in range(first, first + count):
        key = bucket_key(BucketAddress(NAMESPACE, entity_name(number % entities), RESOURCE))
        turn = number // entities - first // entities
        change = {
            "ApproximateCreationDateTime": float(_AT_S),
            "Keys": key,
            "SequenceNumber": f"{number + 1:021}",
            "OldImage": {**_image(turn), **key},
            "NewImage": {**_image(turn + 1), **key},
        }
        made.append({"eventName": "MODIFY", "dynamodb": change})
    return made


@lru_cache(maxsize=_IMAGES)
def _image(takings: int) -> Item:
    """A bucket item after so many takings."""
    bucket = full_bucket(_LIMITS, _AT_S * 1000, metered=True)
    all_milli = {name: takings * amount_milli for name, amount_milli in _TAKES_MILLI.items()}
    taken = take_tokens(bucket, all_milli, takings)
    return encode_bucket_item(BucketAddress(NAMESPACE, "key", RESOURCE), taken)
