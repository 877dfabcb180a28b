"""Usage: what each write consumed, counted in the same step."""

from __future__ import annotations

from dataclasses import replace

from ...core.bucket import BucketAddress
from ...core.limit import MILLI
from ...core.models import UsageSnapshot
from ...core.usage import summarize
from ...core.windows import HOUR_MS, WINDOW_TYPES, iso, iso_ms, window_end, window_start
from ...ports.repository_protocol import UsageQuery
from .trial import Trial, expect, same

_DAY_MS = 24 * HOUR_MS
_ALL = UsageQuery(resource="gpt-4")


async def _use(trial: Trial, address: BucketAddress, at_ms: int, **amounts: int) -> None:
    """Consume whole tokens at this time, whatever the balance."""
    if await trial.bucket(address) is None:
        await trial.write(address, trial.create()._replace(at_ms=at_ms))
    deltas_milli = {name: amount * MILLI for name, amount in amounts.items()}
    await trial.write(address, trial.adjust(**deltas_milli)._replace(at_ms=at_ms, acquires=1))


async def _read(trial: Trial, query: UsageQuery, limit: int = 1000) -> list[UsageSnapshot]:
    found, cursor = await trial.store.usage.read(trial.namespace_id, query, limit, None)
    same(cursor, None, "A cursor although everything was read")
    return found


def _month_start_ms(trial: Trial) -> int:
    """The start of the month that a moment some weeks ago was in."""
    return int(window_start("monthly", trial.now_ms - 40 * _DAY_MS).timestamp()) * 1000


async def check_a_write_is_counted_when_it_is_answered(trial: Trial) -> None:
    address, now_ms = trial.address(), trial.now_ms
    await trial.write(address, trial.create({"rpm": 3 * MILLI}))
    await trial.write(address, trial.take_unseen(rpm=2 * MILLI))
    for window in ("hourly", "daily", "monthly"):
        start = window_start(window, now_ms)
        query = UsageQuery("key-1", "gpt-4", window)
        wanted = UsageSnapshot(
            "key-1", "gpt-4", iso(start), iso(window_end(window, start)), window, {"rpm": 5}, 2
        )
        same(await _read(trial, query), [wanted], f"{window} usage")


async def check_refused_and_repeated_writes_are_not_counted(trial: Trial) -> None:
    address = trial.address()
    take = trial.take_unseen(rpm=5 * MILLI)
    for write in (trial.create(), take, take, trial.take_unseen(rpm=99 * MILLI), trial.create()):
        await trial.write(address, write)
    found = await _read(trial, UsageQuery("key-1", window_type="daily"))
    totals = [(snapshot.counters.get("rpm"), snapshot.total_events) for snapshot in found]
    same(totals, [(5, 2)], "Usage of the day")


async def check_what_is_given_back_is_not_used(trial: Trial) -> None:
    address = trial.address()
    await trial.write(address, trial.create({"rpm": 7 * MILLI, "tpm": 500 * MILLI}))
    refund = trial.adjust(rpm=-7 * MILLI, tpm=-100 * MILLI)._replace(acquires=-1)
    await trial.write(address, refund)
    (found,) = await _read(trial, UsageQuery("key-1", window_type="monthly"))
    same((found.counters.get("rpm", 0), found.counters["tpm"]), (0, 400), "Usage of the month")
    same(found.total_events, 0, "Events of the month")


async def check_windows_begin_and_end_with_the_calendar(trial: Trial) -> None:
    start_ms, address = _month_start_ms(trial), trial.address()
    for at_ms in (start_ms - 1, start_ms, start_ms + HOUR_MS - 1, start_ms + HOUR_MS):
        await _use(trial, address, at_ms, rpm=1)
    await _use(trial, address, start_ms + _DAY_MS, rpm=1)
    counts = {
        (snapshot.window_type, snapshot.window_start): snapshot.counters["rpm"]
        for snapshot in await _read(trial, _ALL)
        if snapshot.window_start >= iso_ms(start_ms)
    }
    wanted = {
        ("hourly", iso_ms(start_ms)): 2,
        ("hourly", iso_ms(start_ms + HOUR_MS)): 1,
        ("hourly", iso_ms(start_ms + _DAY_MS)): 1,
        ("daily", iso_ms(start_ms)): 3,
        ("daily", iso_ms(start_ms + _DAY_MS)): 1,
        ("monthly", iso_ms(start_ms)): 4,
    }
    same(counts, wanted, "Usage by window")


async def check_usage_is_found_by_entity_resource_window_and_time(trial: Trial) -> None:
    start_ms = _month_start_ms(trial)
    for hour in range(3):
        for entity_id, resource in (("a", "gpt-4"), ("b", "gpt-4"), ("a", "gpt-3")):
            at_ms = start_ms + hour * HOUR_MS
            await _use(trial, trial.address(entity_id, resource), at_ms, rpm=1)
    hourly = UsageQuery("a", "gpt-4", "hourly")
    starts = [iso_ms(start_ms + hour * HOUR_MS) for hour in range(3)]
    for query, wanted in (
        (hourly, starts[::-1]),
        (replace(hourly, start_time=starts[1]), [starts[2], starts[1]]),
        (replace(hourly, end_time=starts[1]), [starts[1], starts[0]]),
        (replace(hourly, start_time=starts[1], end_time=starts[1]), [starts[1]]),
        (replace(hourly, resource=None), [s for s in starts[::-1] for _ in range(2)]),
        (replace(hourly, entity_id=None), [s for s in starts[::-1] for _ in range(2)]),
        (replace(hourly, entity_id="nobody"), []),
    ):
        found = [snapshot.window_start for snapshot in await _read(trial, query)]
        same(found, wanted, f"{query}")


async def check_usage_is_read_newest_first_in_pages(trial: Trial) -> None:
    start_ms = _month_start_ms(trial)
    for hour in range(5):
        for entity_id in ("b", "a"):
            await _use(trial, trial.address(entity_id), start_ms + hour * HOUR_MS, rpm=hour + 1)
    wanted = await _read(trial, _ALL)
    starts = [snapshot.window_start for snapshot in wanted]
    same(starts, sorted(starts, reverse=True), "The order")
    same(len(wanted), 2 * (5 + 1 + 1), "Hours, days and months of two entities")
    for size in (1, 3, 13):
        same(await _paged(trial, size), wanted, f"Pages of {size}")
    queries = [_ALL, UsageQuery("a"), UsageQuery("a", "gpt-4"), UsageQuery("nobody")]
    queries += [replace(_ALL, window_type=window) for window in WINDOW_TYPES]
    queries += [replace(_ALL, start_time=starts[2]), replace(_ALL, end_time=starts[2])]
    for query in queries:
        summary = await trial.store.usage.summary(trial.namespace_id, query)
        same(summary, summarize(await _read(trial, query)), f"The summary of {query}")


async def check_usage_that_is_counted_between_two_pages_moves_none(trial: Trial) -> None:
    start_ms = _month_start_ms(trial)
    for hour in range(1, 5):
        await _use(trial, trial.address("b"), start_ms + hour * HOUR_MS, rpm=1)
    before = await _read(trial, _ALL)
    first, cursor = await trial.store.usage.read(trial.namespace_id, _ALL, 2, None)
    for entity_id, hour in (("a", 9), ("c", 4), ("a", 1)):
        await _use(trial, trial.address(entity_id), start_ms + hour * HOUR_MS, rpm=1)
    rest, _ = await trial.store.usage.read(trial.namespace_id, _ALL, 1000, cursor)
    old = [snapshot for snapshot in [*first, *rest] if snapshot.entity_id == "b"]
    same(old, before, "Usage of before")


async def _paged(trial: Trial, size: int) -> list[UsageSnapshot]:
    found: list[UsageSnapshot] = []
    cursor: str | None = None
    cursors: set[str] = set()
    while True:
        page, cursor = await trial.store.usage.read(trial.namespace_id, _ALL, size, cursor)
        expect(len(page) <= size, f"A page of {len(page)}")
        found += page
        if cursor is None:
            return found
        expect(cursor not in cursors, f"A cursor that leads back: {cursor}")
        cursors.add(cursor)


async def check_shards_are_counted_together(trial: Trial) -> None:
    now_ms = trial.now_ms
    for shard in range(3):
        await _use(trial, trial.address(shard=shard), now_ms, rpm=10**15)
    (found,) = await _read(trial, UsageQuery("key-1", window_type="hourly"))
    same((found.counters["rpm"], found.total_events), (3 * 10**15, 6), "Usage of the hour")


async def check_concurrent_writes_are_all_counted(trial: Trial) -> None:
    address = trial.address()
    await trial.write(address, trial.create())
    await trial.at_once(trial.write(address, trial.take_unseen(rpm=MILLI)) for _ in range(20))
    (found,) = await _read(trial, UsageQuery("key-1", window_type="monthly"))
    same((found.counters["rpm"], found.total_events), (20, 21), "Usage of the month")


async def check_usage_of_tenants_does_not_meet(trial: Trial) -> None:
    other = trial.other_tenant()
    await _use(trial, trial.address(), trial.now_ms, rpm=1)
    same(await _read(other, _ALL), [], "Another tenant's usage was read")
