"""Bucket items: every write is `core.apply.apply`, atomically."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.apply import apply
from ...core.bucket import REMEMBERED_OPERATIONS, Bucket, BucketAddress, at
from ...core.idempotency import fence_past, past_fence
from ...core.limit import MILLI, Limit, LimitSet
from ...core.planner import Intent, plan, plan_restamp
from ...core.validation import MAX_AMOUNT
from ...core.writes import ABSENT, Granted, Outcome, Refill, Refused, Write
from .trial import TRIAL_LIMITS, Trial, expect, same

_FEWER = LimitSet.of([Limit.per_second("rpm", 7)])


async def agreed(trial: Trial, address: BucketAddress, write: Write) -> Outcome:
    """Send a write that must be answered, and take effect, as `apply` says."""
    before = await trial.bucket(address)
    wanted = apply(write, before)
    found = await trial.write(address, write)
    same(found, wanted, f"{type(write).__name__} was answered differently than apply answers")
    after = wanted.bucket if isinstance(wanted, Granted) else before
    same(await trial.bucket(address), after, f"{type(write).__name__} left another bucket")
    return found


async def check_only_create_makes_a_bucket(trial: Trial) -> None:
    address = trial.address()
    image = trial.create().bucket
    refill = Refill(trial.io.operation_id(), trial.now_ms, image, image)
    for write in (trial.take_unseen(rpm=1), trial.take(rpm=1), trial.adjust(rpm=-1), refill):
        same(await agreed(trial, address, write), ABSENT, "A bucket came from nothing")
    expect(isinstance(await agreed(trial, address, trial.create()), Granted), "Create was refused")
    expect(isinstance(await agreed(trial, address, trial.create()), Refused), "Created twice")


async def check_a_take_needs_tokens_and_the_same_limits(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create({"rpm": 40 * MILLI}))
    for write in (
        trial.take_unseen(rpm=60 * MILLI),
        trial.take_unseen(rpm=1),
        trial.take_unseen(tpm=1, rpm=0),
        trial.take(rpm=1, tpm=1),
        trial.take(tpm=999 * MILLI),
        trial.take_unseen(),
        trial.take_unseen(_FEWER),
        trial.take(_FEWER, rpm=0),
        trial.take_unseen(rpm=1)._replace(shard_count=2),
    ):
        await agreed(trial, address, write)


async def check_a_take_needs_a_recent_refill_and_a_balance_under_the_roof(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create({"rpm": 40 * MILLI}))
    for take in (trial.take_unseen(rpm=1), trial.take(rpm=1)):
        too_old = take._replace(refilled_from_ms=trial.now_ms + 1)
        too_full = take._replace(roofs_milli={"rpm": 60 * MILLI - 1})
        for write in (too_old, too_full):
            expect(isinstance(await agreed(trial, address, write), Refused), f"{write} was granted")
        fitting = take._replace(
            refilled_from_ms=trial.now_ms, roofs_milli={"rpm": 60 * MILLI}, takes_milli={"rpm": 0}
        )
        expect(isinstance(await agreed(trial, address, fitting), Granted), f"{fitting} was refused")


async def check_what_was_gained_is_taken_once_and_leaves_the_refill_time(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create({"rpm": 100 * MILLI}))
    seen = await existing(trial, address)
    gained = trial.take_gained(seen, rpm=MILLI)
    too_much = gained._replace(floors_milli={"rpm": 1})
    too_full = gained._replace(roofs_milli={"rpm": -1})
    earlier, later = seen.refilled_at_ms - 1, seen.refilled_at_ms + 1
    refilled = gained._replace(refilled_from_ms=earlier, refilled_until_ms=earlier)
    set_back = gained._replace(refilled_from_ms=later, refilled_until_ms=later)
    split = gained._replace(shard_count=2)
    stamped = gained._replace(fingerprint=_FEWER.fingerprint)
    for write in (too_much, too_full, refilled, set_back, split, stamped):
        expect(isinstance(await agreed(trial, address, write), Refused), f"{write} was granted")
    expect(isinstance(await agreed(trial, address, gained), Granted), "What was gained was refused")
    again = trial.take_gained(seen, rpm=MILLI)
    expect(isinstance(await agreed(trial, address, again), Refused), "It was taken twice")
    after = await existing(trial, address)
    same(after.cells["rpm"].tokens_milli, -MILLI, "The balance is not what will be gained")
    same(after.refilled_at_ms, seen.refilled_at_ms, "The refill time moved")


async def check_an_adjust_may_leave_debt_and_never_exceeds_the_ceiling(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create())
    for write in (
        trial.adjust(rpm=250 * MILLI, tpm=-1),
        trial.adjust(rpm=-1, tpm=7),
        trial.adjust(unknown=5, rpm=1),
        trial.adjust(),
        trial.adjust(rpm=-900 * MILLI),
    ):
        expect(isinstance(await agreed(trial, address, write), Granted), "Adjust was refused")


async def check_a_refill_applies_only_to_the_image_it_was_planned_on(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create({"rpm": 100 * MILLI, "tpm": 100 * MILLI}))
    seen = await existing(trial, address)
    later_ms = trial.now_ms + 6_000
    intent = Intent(TRIAL_LIMITS, {"rpm": 10 * MILLI}, 1, None, None, False)
    first = plan(intent, seen, trial.io.operation_id(), later_ms)
    second = plan(intent, seen, trial.io.operation_id(), later_ms + 1)
    assert isinstance(first, Refill)
    assert isinstance(second, Refill)
    await agreed(trial, address, trial.adjust(tpm=5))
    expect(isinstance(await agreed(trial, address, first), Granted), "Refill was refused")
    expect(isinstance(await agreed(trial, address, second), Refused), "Refilled twice")


async def check_a_refill_is_refused_when_a_refund_came_between(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create({"rpm": 100 * MILLI}))
    seen = await existing(trial, address)
    intent = Intent(TRIAL_LIMITS, {}, 1, None, None, False)
    refill = plan_restamp(intent, seen, trial.io.operation_id(), trial.now_ms + 60_000)
    await agreed(trial, address, trial.adjust(rpm=-1))
    expect(isinstance(await agreed(trial, address, refill), Refused), "The ceiling was passed")


async def check_a_refill_that_fills_a_limit_is_refused_when_it_holds_less(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create({"rpm": 10 * MILLI}))
    seen = await existing(trial, address)
    intent = Intent(TRIAL_LIMITS, {}, 1, None, None, False)
    refill = plan_restamp(intent, seen, trial.io.operation_id(), trial.now_ms + 60_000)
    await agreed(trial, address, trial.adjust(rpm=1))
    expect(isinstance(await agreed(trial, address, refill), Refused), "A millitoken was lost")


async def check_a_refill_puts_other_limits_in_force(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create())
    after = await _put_in_force(trial, address, _FEWER, trial.now_ms + 10)
    same(after.fingerprint, _FEWER.fingerprint, "The item kept its old stamp")
    same(set(after.cells), {"rpm"}, "A limit that is gone and full stayed")
    same((after.parent_id, after.cascade), ("org-1", True), "The parent was not stamped")


async def check_limits_out_of_force_are_remembered_until_they_are_full(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create({"tpm": 5 * MILLI}))
    after = await _put_in_force(trial, address, _FEWER, trial.now_ms)
    same(after.dormant, {"tpm"}, "A limit that is gone and not full was forgotten")
    await agreed(trial, address, trial.adjust(tpm=9 * MILLI))
    await agreed(trial, address, trial.adjust(tpm=-2 * MILLI))
    stale = plan_restamp(_intent(_FEWER), after, trial.io.operation_id(), trial.now_ms + 10**6)
    expect(isinstance(await agreed(trial, address, stale), Refused), "A charge was forgotten")
    after = await _put_in_force(trial, address, _FEWER, trial.now_ms + 10**6)
    same(set(after.cells), {"rpm"}, "A limit that is gone and full stayed")


async def check_a_refill_planned_before_a_limit_came_and_went_is_refused(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create(limits=_FEWER))
    seen = await existing(trial, address)
    await _put_in_force(trial, address, TRIAL_LIMITS, trial.now_ms, tpm=MILLI)
    await _put_in_force(trial, address, _FEWER, trial.now_ms)
    stale = plan_restamp(_intent(_FEWER), seen, trial.io.operation_id(), trial.now_ms + 1)
    expect(isinstance(await agreed(trial, address, stale), Refused), "A limit was forgotten")


async def check_an_adjust_leaves_alone_what_it_does_not_find(trial: Trial) -> None:
    address = trial.address()
    await agreed(trial, address, trial.create())
    seen = await existing(trial, address)
    await _put_in_force(trial, address, _FEWER, trial.now_ms)
    for deltas_milli in ({"tpm": 1, "rpm": 1}, {"tpm": 1}, {"tpm": -1, "rpm": -1}):
        adjust = trial.adjust(**deltas_milli)._replace(seen=seen)
        await agreed(trial, address, adjust)


def _intent(limits: LimitSet, **takes_milli: int) -> Intent:
    return Intent(limits, takes_milli, 1, 3600, "org-1", True)


async def _put_in_force(
    trial: Trial, address: BucketAddress, limits: LimitSet, now_ms: int, **takes_milli: int
) -> Bucket:
    seen = await existing(trial, address)
    intent = _intent(limits, **takes_milli)
    planner = plan if takes_milli else plan_restamp
    planned = planner(intent, seen, trial.io.operation_id(), now_ms)
    assert isinstance(planned, Refill)
    await agreed(trial, address, planned)
    return await existing(trial, address)


async def check_a_write_that_is_sent_again_changes_nothing(trial: Trial) -> None:
    address = trial.address()
    created = trial.create()
    await agreed(trial, address, created)
    seen = await existing(trial, address)
    intent = Intent(TRIAL_LIMITS, {"rpm": 1}, 1, None, None, False)
    refill = plan_restamp(intent, seen, trial.io.operation_id(), trial.now_ms + 5)
    writes = (refill, trial.take_unseen(rpm=2), trial.take(tpm=3), trial.adjust(rpm=900 * MILLI))
    for write in (created, *writes):
        await agreed(trial, address, write)
        again = await agreed(trial, address, write)
        expect(isinstance(again, Granted), f"{type(write).__name__} was refused when sent again")


async def check_a_write_behind_the_fence_changes_nothing(trial: Trial) -> None:
    address = trial.address()
    await trial.write(address, trial.create())
    early, late = trial.adjust(rpm=1000), trial.adjust(rpm=2000)
    late = late._replace(operation=past_fence(late.operation, fence_past(early.operation)))
    item = await trial.store.buckets.fence(address, early.operation)
    if item is None or item.fence <= early.operation:
        raise AssertionError(f"The fence was not moved: {item}")
    same(await trial.store.buckets.fence(address, early.operation), item, "a second fence")
    same(await trial.write(address, early), Refused(item), "a write behind the fence")
    for _ in range(REMEMBERED_OPERATIONS + 1):
        granted = await trial.write(address, late)
        late = late._replace(operation=f"{late.operation}+")
    expect(isinstance(granted, Granted), f"A write past the fence was not granted: {granted}")
    after = (await trial.store.buckets.read([address]))[address]
    same(await trial.write(address, early), Refused(after), "a write behind the fence, much later")


async def check_a_fence_of_no_bucket_makes_none(trial: Trial) -> None:
    address = trial.address()
    fenced = await trial.store.buckets.fence(address, trial.io.operation_id())
    same(fenced, None, "The fence of no bucket")
    same(await trial.store.buckets.read([address]), {}, "The bucket after that")


async def check_an_expired_bucket_is_not_charged_blindly(trial: Trial) -> None:
    address, create = trial.address(), trial.create()
    expired = create.bucket._replace(expires_at_s=trial.now_ms // 1000 - 5)
    await trial.write(address, create._replace(bucket=expired))
    found = await trial.write(address, trial.take_unseen(rpm=1))
    expect(not isinstance(found, Granted), "Charged a bucket that may be dropped at any moment")


async def check_all_of_an_item_survives_storage(trial: Trial) -> None:
    """Names with every allowed character, amounts beyond 64 bits, shards, debt, no expiry."""
    limits = LimitSet.of(
        [
            Limit("a-b.c_D9", MAX_AMOUNT, MAX_AMOUNT, 10**9),
            Limit("x", 1, 1, 1),
            *TRIAL_LIMITS.limits,
        ]
    )
    create = trial.create({"a-b.c_D9": 10**18, "x": 0}, limits)
    shard = create.bucket._replace(
        shard=3, shard_count=8, parent_id="org:1@x.y-z", cascade=True, expires_at_s=10**12
    )
    address = trial.address("user:1@example.com", "gpt-4/turbo:v1.2", shard=3)
    await agreed(trial, address, create._replace(bucket=shard))
    for _ in range(12):
        await agreed(trial, address, trial.adjust(**{"a-b.c_D9": 10**18}))


async def check_writes_go_together_or_not_at_all(trial: Trial) -> None:
    first, second = trial.address("a"), trial.address("b")
    buckets = trial.store.buckets
    same(await together(trial, (first, trial.create()), (second, trial.create())), 2, "created")
    image = (await buckets.read([first]))[first]
    refill = Refill(
        trial.io.operation_id(), trial.now_ms, image, at(image, TRIAL_LIMITS, trial.now_ms)
    )
    before = await buckets.read([first, second])
    outcomes = await buckets.write_all([(first, refill), (second, trial.create())])
    same(outcomes[1], Refused(before[second]), "A bucket was created twice")
    same(await buckets.read([first, second]), before, "Part of what was refused was carried out")
    takes = [(address, trial.take(rpm=MILLI)) for address in (first, second)]
    outcomes = await buckets.write_all([takes[0], (second, trial.create())])
    same(isinstance(outcomes[0], Granted), True, "A taking could have been carried out")
    same(await buckets.read([first, second]), before, "Part of what was refused was carried out")
    same(await together(trial, *takes), 2, "taken from")


async def together(trial: Trial, *writes: tuple[BucketAddress, Write]) -> int:
    """Write all, check that each came out as `apply` says, and count the granted."""
    before = await trial.store.buckets.read([address for address, _ in writes])
    outcomes = await trial.store.buckets.write_all(writes)
    same(outcomes, [apply(w, before.get(a)) for a, w in writes], "writes that go together")
    after = await trial.store.buckets.read([address for address, _ in writes])
    granted = [o.bucket for o in outcomes if isinstance(o, Granted)]
    same(list(after.values()), granted, "buckets after writes that go together")
    return len(granted)


async def check_reads_return_what_exists(trial: Trial) -> None:
    addresses = [
        trial.address(entity_id, resource, shard)
        for entity_id in ("b", "a")
        for resource in ("gpt-4", "GPT-4", "gpt-4/x")
        for shard in (0, 1)
    ]
    for address in addresses:
        create = trial.create()
        half = create.bucket._replace(shard=address.shard, shard_count=2)
        await agreed(trial, address, create._replace(bucket=half))
    missing = trial.address("a", "gpt")
    found = await trial.store.buckets.read([*addresses, missing])
    same(set(found), set(addresses), "read")
    await _expect_listed(trial, addresses, missing)


async def _paged(trial: Trial, resource: str) -> dict[BucketAddress, Bucket]:
    """All pages, of which no two have items of one bucket."""
    found: dict[BucketAddress, Bucket] = {}
    cursor: str | None = None
    while True:
        page, cursor = await trial.store.buckets.of_resource_after(
            trial.namespace_id, resource, cursor
        )
        homes = {address.home for address in found} & {address.home for address in page}
        same(homes, set(), "Buckets on two pages")
        found |= page
        if cursor is None:
            return found


async def check_a_deletion_between_two_pages_leaves_out_no_other_bucket(trial: Trial) -> None:
    ids = [f"key-{number:04}" for number in range(120)]
    for entity_id in ids:
        await trial.write(trial.address(entity_id), trial.create())
    found: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = await trial.store.buckets.of_resource_after(
            trial.namespace_id, "gpt-4", cursor
        )
        found += [address.entity_id for address in page]
        if cursor is None:
            break
        await trial.store.entities.delete(trial.namespace_id, found[-1], trial.event(found[-1]))
    same(found, ids, "The entities of all pages")
    same(len(await _of_namespace(trial)), len(await _paged(trial, "gpt-4")), "of_namespace_after")


async def _expect_listed(
    trial: Trial, addresses: Sequence[BucketAddress], missing: BucketAddress
) -> None:
    buckets = trial.store.buckets
    of_a = await buckets.of_entity(trial.namespace_id, "a")
    same(set(of_a), {x for x in addresses if x.entity_id == "a"}, "of_entity")
    same(of_a, await buckets.read(list(of_a)), "of_entity and read differ")
    of_gpt = await buckets.of_resource(trial.namespace_id, "gpt-4")
    same(set(of_gpt), {x for x in addresses if x.resource == "gpt-4"}, "of_resource")
    same(of_gpt, await buckets.read(list(of_gpt)), "of_resource and read differ")
    same(await _paged(trial, "gpt-4"), of_gpt, "of_resource_after")
    same(await buckets.of_resource(trial.namespace_id, missing.resource), {}, "of_resource")
    same(await _paged(trial, missing.resource), {}, "of_resource_after")
    same(await buckets.read([]), {}, "read of nothing")
    same(set(await _of_namespace(trial)), set(addresses), "of_namespace_after")


async def _of_namespace(trial: Trial) -> dict[BucketAddress, Bucket]:
    found: dict[BucketAddress, Bucket] = {}
    cursor: str | None = None
    while True:
        page, cursor = await trial.store.buckets.of_namespace_after(trial.namespace_id, cursor)
        found |= page
        if cursor is None:
            return found


async def check_buckets_of_tenants_do_not_meet(trial: Trial) -> None:
    other = trial.other_tenant()
    await agreed(trial, trial.address(), trial.create({"rpm": 30 * MILLI}))
    same(await other.bucket(other.address()), None, "Another tenant's bucket was read")
    await agreed(other, other.address(), other.create())
    await agreed(other, other.address(), other.take_unseen(rpm=1))
    rest_milli = (await existing(trial, trial.address())).cells["rpm"].tokens_milli
    same(rest_milli, 70 * MILLI, "Another tenant's bucket was charged")
    same(
        set(await other.store.buckets.of_entity(other.namespace_id, "key-1")), {other.address()}, ""
    )


async def check_concurrent_takes_never_overdraw(trial: Trial) -> None:
    address = trial.address()
    await trial.write(address, trial.create({"rpm": 75 * MILLI}))
    outcomes = await trial.at_once(
        trial.write(address, trial.take_unseen(rpm=MILLI)) for _ in range(40)
    )
    granted = [outcome for outcome in outcomes if isinstance(outcome, Granted)]
    balances = {outcome.bucket.cells["rpm"].tokens_milli for outcome in granted}
    same(balances, {n * MILLI for n in range(25)}, "Each grant must see those before it")
    after = await existing(trial, address)
    same(after.cells["rpm"].consumed_milli, 100 * MILLI, "Consumption was miscounted")
    same(after.acquires, 26, "Acquires were miscounted")


async def check_concurrent_adjusts_all_count(trial: Trial) -> None:
    address = trial.address()
    await trial.write(address, trial.create())
    await trial.at_once(trial.write(address, trial.adjust(tpm=MILLI, rpm=3)) for _ in range(40))
    cells = (await existing(trial, address)).cells
    same(cells["tpm"].consumed_milli, 40 * MILLI, "An adjust was lost")
    same(cells["rpm"].tokens_milli, 100 * MILLI - 120, "An adjust was lost")


async def check_concurrent_creates_make_one_bucket(trial: Trial) -> None:
    address = trial.address()
    outcomes = await trial.at_once(trial.write(address, trial.create({"rpm": n})) for n in range(9))
    granted = [outcome.bucket for outcome in outcomes if isinstance(outcome, Granted)]
    same(granted, [await trial.bucket(address)], "Exactly one create may succeed")


async def check_concurrent_refills_credit_the_time_once(trial: Trial) -> None:
    address = trial.address()
    await trial.write(address, trial.create({"rpm": 100 * MILLI}))
    seen = await existing(trial, address)
    then_ms = trial.now_ms + 30_000
    intent = Intent(TRIAL_LIMITS, {"rpm": 10 * MILLI}, 1, None, None, False)
    refills = [plan(intent, seen, trial.io.operation_id(), then_ms) for _ in range(9)]
    outcomes = await trial.at_once(
        trial.write(address, refill) for refill in refills if isinstance(refill, Refill)
    )
    granted = [outcome for outcome in outcomes if isinstance(outcome, Granted)]
    same(len(granted), 1, "Exactly one refill of an image may succeed")
    rest_milli = at(await existing(trial, address), TRIAL_LIMITS, then_ms).cells["rpm"].tokens_milli
    same(rest_milli, 40 * MILLI, "The time was credited twice, or not at all")


async def existing(trial: Trial, address: BucketAddress) -> Bucket:
    """Return the item at an address, which must be there."""
    bucket = await trial.bucket(address)
    assert bucket is not None
    return bucket
