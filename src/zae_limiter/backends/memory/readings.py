"""Usage of the hour that a bucket is in, read off the bucket's own counters.

A bucket counts what it has consumed since it was made. What it has used in an hour is the
difference of two readings, so that only the first write of an hour has to note one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from ...core.bucket import Bucket, BucketAddress, is_another
from ...core.usage import UsageCounts, UsageHour, consumption
from ...core.validation import WCU
from ...core.windows import hour_start_ms
from .tables import Reading, Tables


def note(
    tables: Tables, address: BucketAddress, at_ms: int, before: Bucket | None, after: Bucket
) -> None:
    """Read the counters before a write takes effect, if the write is the first of its hour."""
    hour_ms = hour_start_ms(at_ms)
    if before is not None and is_another(before, after):
        _settle(tables, address, tables.readings[address], before)
        before = None
    if before is None:
        tables.readings[address] = _of_new(hour_ms)
        return
    reading = tables.readings[address]
    # A limit that is removed takes its counter along: settle before it is gone.
    if reading.hour_ms != hour_ms or before.cells.keys() != after.cells.keys():
        _settle(tables, address, reading, before)
        tables.readings[address] = Reading(hour_ms, consumption(None, before))


# Most buckets are in their first hour. They share one reading, which saves memory.
@lru_cache(maxsize=16)
def _of_new(hour_ms: int) -> Reading:
    return Reading(hour_ms, UsageCounts())


def _settle(tables: Tables, address: BucketAddress, reading: Reading, bucket: Bucket) -> None:
    namespace_id, entity_id, resource, _ = address
    key = (namespace_id, entity_id, resource, reading.hour_ms)
    tables.usage[key].add(_used(reading, bucket))


def _used(reading: Reading, bucket: Bucket) -> UsageCounts:
    """Return the consumption of a bucket since a reading; negative where it gave back."""
    seen_milli, events = reading.counts.consumed_milli, reading.counts.events
    consumed_milli = {
        name: cell.consumed_milli - seen_milli.get(name, 0)
        for name, cell in bucket.cells.items()
        if name != WCU
    }
    return UsageCounts(consumed_milli, bucket.acquires - events)


def forget(tables: Tables, doomed: Callable[[BucketAddress], bool]) -> int:
    """Drop buckets, but keep their usage. Return how many were dropped."""
    addresses = [address for address in tables.buckets if doomed(address)]
    for address in addresses:
        _settle(tables, address, tables.readings.pop(address), tables.buckets.pop(address))
    return len(addresses)


def current_hours(tables: Tables, namespace_id: str) -> Iterator[UsageHour]:
    """Yield the usage of each bucket in the hour that it is in."""
    for address, bucket in tables.buckets.items():
        if address.namespace_id == namespace_id:
            reading = tables.readings[address]
            used = _used(reading, bucket)
            yield UsageHour(address.entity_id, address.resource, reading.hour_ms, used)
