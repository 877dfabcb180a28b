"""Usage that is counted from a stream of changes: each write once, however it is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from ...core.limit import MILLI
from ...core.models import UsageSnapshot
from ...core.usage import UsageAddition, UsageCounts, UsagePart
from ...core.windows import WindowType, iso, iso_ms, window_end, window_start
from ...ports.repository_protocol import NamespaceRecord, StreamedUsage, UsageQuery
from .trial import Trial, expect, same

_DAY_S = 86_400


def _sequence(number: int, label: str = "2024-01-01T00:00:00.000") -> str:
    return f"{label}/{number:040d}"


def _parts(*rpm: int, first: int = 1) -> tuple[UsagePart, ...]:
    """Writes that took so many tokens each, one after the other."""
    return tuple(
        UsagePart(_sequence(number), UsageCounts({"rpm": tokens * MILLI}, 1))
        for number, tokens in enumerate(rpm, first)
    )


def _addition(
    trial: Trial,
    parts: dict[int, tuple[UsagePart, ...]],
    window: WindowType = "hourly",
    start: datetime | None = None,
    entity_id: str = "key-1",
) -> UsageAddition:
    start = start or window_start(window, trial.now_ms)
    expires_at_s = trial.now_ms // 1000 + 90 * _DAY_S
    return UsageAddition(trial.namespace_id, entity_id, "gpt-4", window, start, expires_at_s, parts)


async def _add(trial: Trial, parts: dict[int, tuple[UsagePart, ...]]) -> bool:
    return await _usage(trial).add(_addition(trial, parts))


def _usage(trial: Trial) -> StreamedUsage:
    return cast(StreamedUsage, trial.store.usage)


async def _read(trial: Trial, query: UsageQuery | None = None) -> list[UsageSnapshot]:
    query = query or UsageQuery("key-1")
    return (await trial.store.usage.read(trial.namespace_id, query, 1000, None))[0]


async def _counted(trial: Trial) -> tuple[int, int]:
    """The tokens and events of the only snapshot."""
    (found,) = await _read(trial)
    return found.counters.get("rpm", 0), found.total_events


async def check_an_addition_is_found_in_its_window(trial: Trial) -> None:
    for window in ("hourly", "daily", "monthly"):
        start = window_start(window, trial.now_ms)
        addition = _addition(trial, {0: _parts(2, 3)}, window)
        expect(await _usage(trial).add(addition), f"Nothing was counted of {addition}")
        wanted = UsageSnapshot(
            "key-1", "gpt-4", iso(start), iso(window_end(window, start)), window, {"rpm": 5}, 2
        )
        for query in (
            UsageQuery("key-1", window_type=window),
            UsageQuery("key-1", "gpt-4", window),
            UsageQuery(resource="gpt-4", window_type=window),
        ):
            same(await _read(trial, query), [wanted], f"{query}")


async def check_an_addition_that_comes_again_changes_nothing(trial: Trial) -> None:
    for is_new in (True, False, False):
        same(await _add(trial, {0: _parts(1, 2, 3)}), is_new, "Whether anything was counted")
    same(await _counted(trial), (6, 3), "Usage")


async def check_pieces_of_an_addition_are_counted_once(trial: Trial) -> None:
    parts = _parts(1, 2, 3, 4)
    for piece, wanted in (
        (parts[:1], (1, 1)),
        (parts[:3], (6, 3)),
        (parts[1:2], (6, 3)),
        (parts[2:], (10, 4)),
        (parts[:2], (10, 4)),
        (parts, (10, 4)),
    ):
        await _add(trial, {0: piece})
        same(await _counted(trial), wanted, f"Usage after {piece}")


async def check_shards_are_counted_apart(trial: Trial) -> None:
    await _add(trial, {0: _parts(1, first=9), 31: _parts(2, 4)})
    await _add(trial, {1: _parts(8), 31: _parts(4, 16, first=2)})
    await _add(trial, {0: _parts(1, 32, first=9), 1: _parts(8)})
    same(await _counted(trial), (1 + 2 + 4 + 8 + 16 + 32, 6), "Usage")


async def check_parts_that_come_to_nothing_are_remembered(trial: Trial) -> None:
    taken, back = UsageCounts({"rpm": 5 * MILLI}, 1), UsageCounts({"rpm": -5 * MILLI}, -1)
    both = (UsagePart(_sequence(1), taken), UsagePart(_sequence(2), back))
    for parts in (both, both[:1], both[1:]):
        await _add(trial, {0: parts})
        same(await _counted(trial), (0, 0), f"Usage after {parts}")


async def check_what_is_given_back_later_is_subtracted(trial: Trial) -> None:
    await _add(trial, {0: _parts(7)})
    back = UsageCounts({"rpm": -9 * MILLI, "tpm": -MILLI}, -1)
    await _add(trial, {0: (UsagePart(_sequence(2), back),)})
    (found,) = await _read(trial)
    same((found.counters, found.total_events), ({"rpm": -2, "tpm": -1}, 0), "Usage")


async def check_parts_of_a_token_add_up(trial: Trial) -> None:
    for shard, amount_milli in enumerate((1, 1_499, 500, 10**18)):
        counts = UsageCounts({"rpm": amount_milli}, 0)
        await _add(trial, {shard: (UsagePart(_sequence(1), counts),)})
    same(await _counted(trial), (2 + 10**15, 0), "Usage")


async def check_a_new_stream_goes_on_where_the_old_one_ended(trial: Trial) -> None:
    await _add(trial, {0: _parts(1, first=10**30)})
    later = UsagePart(_sequence(1, "2024-02-01T00:00:00.000"), UsageCounts({"rpm": MILLI}, 1))
    for is_new in (True, False):
        same(await _add(trial, {0: (later,)}), is_new, "Whether anything was counted")
    same(await _counted(trial), (2, 2), "Usage")


async def check_concurrent_additions_are_counted_once(trial: Trial) -> None:
    parts = _parts(*range(1, 13))
    pieces = [{0: parts[:end], 1: parts[: 13 - end]} for end in range(1, 13)]
    await trial.at_once(_add(trial, piece) for piece in [*pieces, *pieces])
    same(await _counted(trial), (2 * sum(range(1, 13)), 24), "Usage")


async def check_a_limit_may_have_any_name_in_a_snapshot(trial: Trial) -> None:
    names: Sequence[str] = ("ttl", "window", "total_events", "PK", "resource", "a-b.c", "seen")
    counts = UsageCounts({name: n * MILLI for n, name in enumerate(names, 1)}, 1)
    await _add(trial, {0: (UsagePart(_sequence(1), counts),)})
    (found,) = await _read(trial)
    same(found.counters, {name: n for n, name in enumerate(names, 1)}, "Usage")


async def check_snapshots_go_with_their_entity(trial: Trial) -> None:
    for entity_id in ("key-1", "key-2"):
        await _usage(trial).add(_addition(trial, {0: _parts(1)}, entity_id=entity_id))
    deleted = await trial.store.entities.delete(trial.namespace_id, "key-1", trial.event())
    same(deleted, 1, "Records of the entity that were deleted")
    same(await _read(trial), [], "Usage of the deleted entity")
    same(len(await _read(trial, UsageQuery("key-2"))), 1, "Usage of the other entity")


async def check_snapshots_go_with_their_namespace(trial: Trial) -> None:
    namespaces, name, other = trial.store.namespaces, trial.name("team"), trial.other_tenant()
    await namespaces.register(NamespaceRecord(name, trial.namespace_id, iso_ms(trial.now_ms)))
    for tenant in (trial, other):
        await _add(tenant, {0: _parts(1)})
    await namespaces.delete(name, iso_ms(trial.now_ms))
    same(await namespaces.purge(trial.namespace_id), 1, "Records that were purged")
    same(await _read(trial), [], "Usage in the purged namespace")
    same(len(await _read(other)), 1, "Usage of the other tenant")
