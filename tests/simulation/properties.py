"""What must hold after every run, whatever happened in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import groupby

from tests.support.partition import assert_partition
from zae_limiter.core.bucket import (
    MAX_AHEAD_MS,
    Bucket,
    BucketAddress,
    at,
    full_bucket,
    has_leapt,
    is_ahead,
    is_another,
    time_to_fill_ms,
)
from zae_limiter.core.bucket import refill as refilled
from zae_limiter.core.idempotency import operation_name
from zae_limiter.core.judge import judge_shards
from zae_limiter.core.limit import MILLI, LimitSet
from zae_limiter.core.shards import RETIRED, in_force
from zae_limiter.core.validation import FORGOTTEN, SET_BACK, WCU
from zae_limiter.core.windows import hour_start_ms, iso_ms
from zae_limiter.core.writes import Adjust, Create, Fill, Refill, Take, Write
from zae_limiter.flows.admin import usage
from zae_limiter.flows.scope import Scope
from zae_limiter.runtime.blocking import run
from zae_limiter.testing.history import Event, worst_window

from .scenario import RESOURCE, Scenario, chain
from .truth import Applied
from .watch import Amounts, Call, Ending, Story, add
from .world import NAMESPACE, World

# All pauses of `flows.send` between the tries of one write.
_PAUSES_MS = 260
_WAYS_PER_CALL = 2


def check(world: World) -> None:
    """Raise `AssertionError` for the first promise that was broken."""
    for home, history in world.truth.histories().items():
        check_items(history)
        if home not in world.truth.expired:
            check_partition(history)
        check_window(home, history)
        check_usage(world, home, history)
    check_charges(world)
    check_once(world)
    check_limit_changes(world)
    check_waits(world)
    check_refusals(world)


def deltas_milli(write: Write) -> dict[str, int]:
    """What a write means to move out of a bucket, limit by limit."""
    match write:
        case Take() | Fill():
            moved = dict(write.takes_milli)
        case Adjust():
            moved = dict(write.deltas_milli)
        case Create():
            moved = {name: cell.consumed_milli for name, cell in write.bucket.cells.items()}
        case Refill():
            moved = {
                name: cell.consumed_milli - _consumed_milli(write.before, name)
                for name, cell in write.after.cells.items()
            }
    return {name: amount_milli for name, amount_milli in moved.items() if name != WCU}


def acquires(write: Write) -> int:
    """How many acquires a write counts."""
    match write:
        case Create():
            return write.bucket.acquires
        case Refill():
            return write.after.acquires - write.before.acquires
        case _:
            return write.acquires


def is_split(write: Write) -> bool:
    """Whether the write changes how a bucket is divided: a split, a merge or a filled hole."""
    match write:
        case Create():
            return bool(write.bucket.generation)
        case Refill():
            return write.after.part != write.before.part
        case _:
            return False


def is_merge(write: Write) -> bool:
    """Whether the write makes a larger part of an item, or retires an item."""
    if not isinstance(write, Refill):
        return False
    before, after = write.before, write.after
    return after.generation == RETIRED or after.shard_count < before.shard_count


def _consumed_milli(bucket: Bucket | None, name: str) -> int:
    return bucket.cells[name].consumed_milli if bucket and name in bucket.cells else 0


def check_items(history: Iterable[Applied]) -> None:
    """Balances and counters after each write follow from those before it."""
    seen: set[tuple[BucketAddress, str]] = set()
    for _, together in groupby(history, key=lambda applied: applied.step):
        parts = list(together)
        for applied in parts:
            operation = applied.address, operation_name(applied.write.operation)
            assert operation not in seen, f"applied twice: {applied}"
            seen.add(operation)
            _check_item(applied)
        if is_merge(parts[0].write):
            _check_merge(parts)
        elif is_split(parts[0].write) and len(parts) > 1:
            _check_split(parts)


def check_partition(history: Iterable[Applied]) -> None:
    """4.8: after each step the parts in force sum to one."""
    items: dict[int, Bucket] = {}
    for _, together in groupby(history, key=lambda applied: applied.step):
        items |= {applied.address.shard: applied.after for applied in together}
        assert_partition(items.values())


def _check_item(applied: Applied) -> None:
    before, after, write = applied.before, applied.after, applied.write
    if before is not None and is_another(before, after):
        before = None
    if before is not None and after.refilled_at_ms < before.refilled_at_ms:
        assert SET_BACK in after.dormant, f"rf fell: {applied}"
        assert is_ahead(before, write.at_ms), f"rf was set back without need: {applied}"
    counted = (before.acquires if before else 0) + acquires(write)
    assert after.acquires == counted, f"acquires are miscounted: {applied}"
    moved_milli = deltas_milli(write)
    if before is not None:
        _check_forgotten(before, after)
    for name, cell in after.cells.items():
        if name in {WCU, SET_BACK}:
            continue
        ceiling_milli, _, period_ms = after.rate(name)
        assert cell.tokens_milli <= ceiling_milli, f"{name} above its ceiling: {applied}"
        assert 0 <= cell.remainder < period_ms, f"{name} has an odd rest: {applied}"
        counted = _consumed_milli(before, name) + moved_milli.get(name, 0)
        assert cell.consumed_milli == counted, f"{name} is miscounted: {applied}"
        if moved_milli.get(name) and not isinstance(write, Adjust):
            held_milli = refilled(after, write.at_ms).cells[name].tokens_milli
            assert held_milli >= 0, f"{name} is overdrawn: {applied}"
        if before and isinstance(write, Adjust) and name not in before.cells:
            owed_milli = ceiling_milli - refilled(after, write.at_ms).cells[name].tokens_milli
            assert 0 <= owed_milli - moved_milli[name] <= 1, f"{name} owes {owed_milli}: {applied}"
        elif before and before.fingerprint == after.fingerprint and not is_split(write):
            expected_milli = _balance_milli(applied, name, moved_milli.get(name, 0))
            assert cell.tokens_milli == expected_milli, f"{name} not {expected_milli}: {applied}"


def _check_forgotten(before: Bucket, after: Bucket) -> None:
    """4.1: a limit is forgotten only when, as a new one, it would hold no more."""
    then = refilled(before, after.refilled_at_ms)
    for name in before.cells.keys() - after.cells.keys():
        is_full = then.cells[name].tokens_milli == then.ceiling_milli(name)
        assert is_full, f"{name} was forgotten: {before}, then {after}"


def _balance_milli(applied: Applied, name: str, moved_milli: int) -> int:
    """4.2: nothing but the time that was credited and what was moved changes a balance."""
    assert applied.before is not None
    credited = refilled(applied.before, applied.after.refilled_at_ms)
    is_leap = has_leapt(applied.before, applied.after)
    if is_leap and time_to_fill_ms(applied.before, SET_BACK) > MAX_AHEAD_MS:
        credited = applied.before
    left_milli = credited.cells[name].tokens_milli - moved_milli
    return min(applied.after.ceiling_milli(name), left_milli)


def _check_split(parts: list[Applied]) -> None:
    """4.8: two shards hold together what the one did."""
    lower, upper = parts
    assert lower.before is not None
    for name, cell in lower.before.cells.items():
        held_milli = sum(part.after.cells[name].tokens_milli for part in (lower, upper))
        is_own = name in {WCU, SET_BACK, FORGOTTEN}
        assert is_own or held_milli == cell.tokens_milli, f"{name} not as before: {parts}"


def _check_merge(parts: list[Applied]) -> None:
    """4.8: a merged item holds what the two did, but for half a millitoken."""
    merged, retired = parts[0], parts[1:2]
    assert merged.before is not None
    if not retired:
        return
    items = [merged.before, *(part.before for part in retired if part.before is not None)]
    if any(SET_BACK in item.cells for item in items):
        return  # Time that was set back is not credited.
    for name, cell in merged.after.cells.items():
        if any(name not in item.cells for item in items) or name == WCU:
            continue
        then = [refilled(item, merged.after.refilled_at_ms) for item in items]
        held_milli = sum(item.cells[name].tokens_milli for item in then)
        is_same = all(item.fingerprint == merged.after.fingerprint for item in items)
        assert not is_same or 0 <= cell.tokens_milli - held_milli <= 1, f"{name}: {parts}"


def check_window(home: BucketAddress, history: list[Applied]) -> None:
    """4.1, with the most that the limits allowed at any time."""
    takings = [applied for applied in history if not isinstance(applied.write, Adjust)]
    leads_ms = [applied.write.at_ms - applied.at_ms for applied in takings]
    skew_ms = max(0, *leads_ms) - min(0, *leads_ms)
    for name, life in _lives(history):
        cells = [applied.after.cells[name] for applied in life]
        fastest = max(cells, key=lambda c: Fraction(*c.rate[1:]))
        window = worst_window(
            _events(life, name),
            capacity_milli=max(cell.capacity_milli for cell in cells),
            refill_amount_milli=fastest.rate.amount_milli,
            refill_period_ms=fastest.rate.period_ms,
            skew_ms=skew_ms,
        )
        assert window.excess_milli <= 0, f"{name} of {home} let out too much: {window}"


def _events(life: list[Applied], name: str) -> Iterator[Event]:
    """Debt of a bucket in several items holds back all of them only after it has been spread: an
    acquire that comes meanwhile may be admitted. So it counts against a bucket in one item."""
    counts_debt = all(applied.after.shard_count == 1 for applied in life)
    for _, together in groupby(life, key=lambda applied: applied.step):
        parts = list(together)
        admitted = not isinstance(parts[0].write, Adjust)
        amount_milli = sum(deltas_milli(part.write).get(name, 0) for part in parts)
        if admitted or counts_debt or amount_milli < 0:
            yield Event(parts[0].at_ms, name, amount_milli, admitted)


def _lives(history: list[Applied]) -> Iterator[tuple[str, list[Applied]]]:
    """The history of each limit: of all shards together or, if it was ever taken away and
    so began anew somewhere, of each shard by itself until then."""
    names = {name for applied in history for name in applied.after.cells} - {WCU}
    for name in sorted(names):
        if all(name in applied.after.cells for applied in history):
            yield name, history
            continue
        for shard in sorted({applied.address.shard for applied in history}):
            of_shard = [applied for applied in history if applied.address.shard == shard]
            for is_there, life in groupby(of_shard, key=lambda a: name in a.after.cells):
                if is_there:
                    yield name, list(life)


def check_usage(world: World, home: BucketAddress, history: list[Applied]) -> None:
    """4.10: each hour counts what was consumed in it, and each admission once."""
    scope = Scope(world.store, world.fate.io, NAMESPACE)
    query = usage.make_query(home.entity_id, home.resource, "hourly", None, None)
    found, _ = run(usage.get_usage_snapshots(scope, query, 1000, None))
    counted = {snapshot.window_start: snapshot for snapshot in found}
    for start_ms, hour in groupby(
        sorted(history, key=_hour_ms),
        key=_hour_ms,
    ):
        snapshot, used = counted.pop(iso_ms(start_ms)), list(hour)
        assert snapshot.counters == _consumed(used), f"usage at {home}: {snapshot}"
        assert snapshot.total_events == sum(acquires(applied.write) for applied in used)
    assert not counted, f"usage at {home} in hours when nothing happened: {counted}"


def _hour_ms(applied: Applied) -> int:
    return hour_start_ms(applied.write.at_ms)


def _consumed(history: list[Applied]) -> dict[str, int]:
    total: dict[str, int] = {}
    for applied in history:
        for name, amount_milli in deltas_milli(applied.write).items():
            if amount_milli and name in applied.after.cells:
                total[name] = total.get(name, 0) + amount_milli
    return {name: amount_milli // MILLI for name, amount_milli in total.items() if amount_milli}


def check_charges(world: World) -> None:
    """4.6 and 4.7: each acquire was charged once at every level, or not at all."""
    net_milli: dict[tuple[Story, BucketAddress], Amounts] = {}
    for applied in world.truth.applied:
        call = world.watch.sent.get(operation_name(applied.write.operation))
        moved_milli = deltas_milli(applied.write)
        if call is None:
            assert not any(moved_milli.values()), f"nobody asked for {applied}"
        else:
            key = call.story, applied.address.home
            add(net_milli.setdefault(key, {}), moved_milli)
    for story in world.watch.stories:
        _check_levels(story)
    for home in world.truth.histories():
        if home in world.truth.expired:
            continue  # What is given back to an item that is gone goes nowhere.
        stories = [s for s in world.watch.stories if home.entity_id in chain(s.entity_id)]
        if world.scenario.coalesces:
            _check_together(stories, home, net_milli)
        else:
            for story in stories:
                _check_net(world, story, home, net_milli.get((story, home), {}))


def _check_together(
    stories: list[Story], home: BucketAddress, net_milli: dict[tuple[Story, BucketAddress], Amounts]
) -> None:
    """One write may be that of several acquires of a client, so only their sum can be told."""
    for client in {story.client for story in stories}:
        group = [story for story in stories if story.client is client]
        net: Amounts = {}
        expected: Amounts = {}
        most: dict[str, float] = {}
        for story in group:
            add(net, net_milli.get((story, home), {}))
            add(expected, story.believes(home))
            add(most, {name: most_milli(story, name) for name in story.most_milli})
        unsure = any(story.ending is Ending.NONE or home in story.troubled for story in group)
        for name in sorted({*net, *expected}):
            held, wanted = net.get(name, 0), expected.get(name, 0)
            right = held <= most.get(name, 0) if unsure else held == wanted
            assert held >= 0, f"{held} {name} at {home}, given back but never taken: {group}"
            assert right, f"{held} {name} at {home}, not {wanted}: {group}"


def _check_levels(story: Story) -> None:
    if story.lease is None or story.lease.degraded:
        return
    charged = list(dict.fromkeys(entry.address.entity_id for entry in story.lease.ledger.entries))
    assert charged == chain(story.entity_id), f"{story} was admitted without all levels"


def _check_net(world: World, story: Story, home: BucketAddress, net_milli: Amounts) -> None:
    late_milli = _late_milli(world, story, home)
    expected_milli = story.believes(home)
    for name in sorted({*net_milli, *expected_milli}):
        net = net_milli.get(name, 0) - late_milli.get(name, 0)
        assert net >= 0, f"{net} {name} at {home}, given back but never taken: {story}"
        if story.ending is Ending.NONE or story.doubts_about(home):
            assert net <= most_milli(story, name), f"{net} {name} at {home}: {story}"
        else:
            expected = expected_milli.get(name, 0)
            assert net == expected, f"{net} {name} at {home}, not {expected}: {story}"


def most_milli(story: Story, name: str) -> float:
    """What may stay charged at most where the store left the client in doubt. Who waits may
    try any number of times, and be left in doubt each time."""
    return math.inf if story.timeout is not None else story.most_milli.get(name, 0)


def _late_milli(world: World, story: Story, home: BucketAddress) -> Amounts:
    """What was charged by creations that landed after the client had been shown that they had
    not. A bucket that is not there cannot be fenced, so the client errs toward having charged."""
    total: Amounts = {}
    if not world.scenario.faults.late_requests:
        return total
    for applied in world.truth.applied:
        is_late = (applied.address, operation_name(applied.write.operation)) in story.dismissed
        if is_late and applied.address.home == home:
            assert isinstance(applied.write, Create), f"changed by a late write: {applied}"
            add(total, deltas_milli(applied.write))
    return total


def check_once(world: World) -> None:
    """4.6: however often a call has to try, it never holds more than one charge of an item."""
    if world.scenario.metered or world.scenario.coalesces:
        return
    held_milli: dict[tuple[Call, BucketAddress], Amounts] = {}
    for applied in world.truth.applied:
        sent = world.watch.sent.get(operation_name(applied.write.operation))
        if sent is None or sent.story.timeout is not None:
            continue
        held = held_milli.setdefault((sent, applied.address), {})
        is_charge = not isinstance(applied.write, Adjust) and any(
            deltas_milli(applied.write).values()
        )
        if is_charge and applied.address not in world.truth.expired:
            assert not any(held.values()), f"charged again: {applied}"
        add(held, deltas_milli(applied.write))


def check_limit_changes(world: World) -> None:
    """4.4: nobody admits by limits that were replaced longer ago than caches live."""
    ttl_ms = world.scenario.cache_ttl_s * 1000
    if world.scenario.clock_steps:
        ttl_ms += 4000
    for applied in world.truth.applied:
        if isinstance(applied.write, Adjust) or _is_renewal(applied):
            continue
        if is_split(applied.write) and not is_merge(applied.write):
            continue
        sent = world.watch.sent[operation_name(applied.write.operation)]
        allowed = {sent.story.override_set}
        if sent.story.override is None:
            since_ms = sent.called_ms - ttl_ms
            entity_id = applied.address.entity_id
            allowed = {*world.truth.limits_in_force(entity_id, RESOURCE, since_ms, applied.at_ms)}
        fingerprints = {limits.fingerprint for limits in allowed if limits}
        assert applied.after.fingerprint in fingerprints, f"outdated limits: {applied}"


def _is_renewal(applied: Applied) -> bool:
    """Whether it takes nothing and leaves the limits as they are: an item in debt is kept."""
    before, after = applied.before, applied.after
    is_same = before is not None and before.fingerprint == after.fingerprint
    return is_same and not any(deltas_milli(applied.write).values())


def check_waits(world: World) -> None:
    """Nobody waits past its timeout, apart from the time that calls take: its own, and those
    of its client that it had to let pass."""
    scenario = world.scenario
    if scenario.jump_ms or scenario.clock_steps:
        return
    for story in world.watch.stories:
        if story.timeout is None or story.ending is Ending.NONE:
            continue
        of_client = [other for other in world.watch.stories if other.client is story.client]
        calls, faults = sum(s.calls for s in of_client), sum(s.faults for s in of_client)
        calls_ms = calls * (_WAYS_PER_CALL * scenario.faults.max_delay_ms + _linger_ms(scenario))
        most_ms = round(story.timeout * 1000) + calls_ms + faults * _PAUSES_MS
        waited_ms = story.decided_ms - story.began_ms
        assert waited_ms <= most_ms, f"waited {waited_ms} of {most_ms} ms: {story}"


def _linger_ms(scenario: Scenario) -> int:
    return round(scenario.linger_s * 1000) if scenario.coalesces else 0


def check_refusals(world: World) -> None:
    """4.5: who is refused at once would have been short at some level when the call came, if
    what happened at some moment of the call had happened before."""
    scenario = world.scenario
    if not scenario.is_punctual or scenario.changes_limits or scenario.expiries:
        return
    histories = world.truth.histories()
    for story in world.watch.stories:
        if story.ending is Ending.REFUSED and story.timeout is None:
            assert any(
                _was_short(world, story, entity_id, histories)
                for entity_id in chain(story.entity_id)
            ), f"refused for nothing: {story}"


def _was_short(
    world: World, story: Story, entity_id: str, histories: dict[BucketAddress, list[Applied]]
) -> bool:
    limits = LimitSet.of(world.scenario.limits.get(entity_id, world.scenario.defaults))
    takes_milli = {n: a * MILLI for n, a in story.consume.items() if n in limits.by_name}
    history = histories.get(BucketAddress(NAMESPACE, entity_id, RESOURCE), [])
    since_ms = story.began_ms - world.scenario.refusal_ttl_s * 1000
    return any(
        not judge_shards([at(item, limits, since_ms) for item in items], takes_milli).fits
        for items in _moments(story, limits, history, since_ms)
    )


def _moments(
    story: Story, limits: LimitSet, history: list[Applied], since_ms: int
) -> Iterator[list[Bucket]]:
    """All items of a bucket as they were at some time, and after each change of them until the
    call was decided."""
    items = {0: full_bucket(limits, since_ms)}
    later = []
    for _, together in groupby(history, key=lambda applied: applied.step):
        parts = list(together)
        if parts[0].at_ms < since_ms:
            items |= {part.address.shard: part.after for part in parts}
        elif parts[0].at_ms <= story.decided_ms:
            later.append(parts)
    yield _in_force(items)
    for parts in later:
        items |= {part.address.shard: part.after for part in parts}
        yield _in_force(items)


def _in_force(items: dict[int, Bucket]) -> list[Bucket]:
    counts = in_force({shard: item.part for shard, item in items.items()})
    return [items[shard] for shard in counts]
