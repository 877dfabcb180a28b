from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.kinds import GAINED, STORED, UNSEEN, kind_of
from tests.support.strategies import limit_sets, quick, untimed
from zae_limiter.core.apply import apply
from zae_limiter.core.bucket import (
    FIRST_ITEM_OUTLASTS_S,
    Bucket,
    Cell,
    at,
    full_bucket,
    refill,
    take_tokens,
)
from zae_limiter.core.limit import Limit, LimitSet
from zae_limiter.core.planner import (
    Crowded,
    Intent,
    Short,
    plan,
    plan_create,
    plan_first,
    plan_outlasting,
    plan_restamp,
    stamped,
)
from zae_limiter.core.validation import WCU
from zae_limiter.core.writes import Create, Fill, Granted, Refill, Refused, Take

NOW_MS = 1_000_000
LIMITS = LimitSet.of([Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6000)])
OTHER = LimitSet.of([Limit.per_minute("rpm", 30), Limit.per_minute("tpm", 6000)])
FULL = full_bucket(LIMITS, NOW_MS)
USED = take_tokens(FULL, {"rpm": 10_000}, 10)
EMPTY = take_tokens(FULL, {"rpm": 60_000}, 60)
EXPIRED = USED._replace(expires_at_s=NOW_MS // 1000)
LASTING = EMPTY._replace(expires_at_s=NOW_MS // 1000 + 61)
PASSING = EMPTY._replace(expires_at_s=NOW_MS // 1000 + 60)
# By its fingerprint it has both limits, but a client that knows nothing of those took one away.
ROBBED = USED._replace(cells={"rpm": USED.cells["rpm"]})


def wants(limits: LimitSet = LIMITS, ttl_seconds: int | None = None, **takes_milli: int) -> Intent:
    return Intent(limits, takes_milli, 2, ttl_seconds, "org", True)


@pytest.mark.parametrize(
    ("image", "intent", "later_ms", "expected"),
    [
        (USED, wants(rpm=1000), 0, STORED),
        (USED, wants(rpm=50_000), 0, STORED),
        (USED, wants(rpm=50_001), 0, "Short"),
        (USED, wants(rpm=50_001), 1, GAINED),
        (USED, wants(rpm=50_001), -1, "Short"),
        (USED, wants(rpm=1000), 9_999, STORED),
        (USED, wants(rpm=1000), 10_000, "Fill"),
        (USED, wants(rpm=1000), -5000, STORED),
        (USED, wants(rpm=60_001), 10_000, "Short"),
        (take_tokens(FULL, {"rpm": 1}, 1), wants(rpm=1000), 0, STORED),
        (FULL, wants(rpm=1000), 0, "Fill"),
        (FULL, wants(rpm=60_000), 0, "Fill"),
        (FULL, wants(rpm=0), 0, STORED),
        (USED, wants(rpm=1000, tpm=1), 0, "Refill"),
        (EMPTY, wants(rpm=1), 0, "Short"),
        (EMPTY, wants(rpm=1000), 999, "Short"),
        (EMPTY, wants(rpm=1000), 1000, GAINED),
        (EMPTY, wants(rpm=1000), 1001, "Refill"),
        (LASTING, wants(rpm=1000), 1000, GAINED),
        (PASSING, wants(rpm=1000), 1000, "Refill"),
        (EMPTY, wants(rpm=0), 0, STORED),
        (EMPTY, wants(), 0, STORED),
        (EXPIRED, wants(rpm=1000), 0, "Refill"),
        (USED, wants(OTHER, rpm=30_000), 0, "Refill"),
        (USED, wants(OTHER, rpm=30_001), 0, "Short"),
        (EMPTY, wants(OTHER, rpm=1000), 500, "Short"),
        (ROBBED, wants(rpm=1000), 0, STORED),
        (ROBBED, wants(tpm=1000), 0, "Refill"),
        (ROBBED, wants(rpm=50_001, tpm=1000), 0, "Short"),
    ],
)
def test_the_image_decides_which_write_comes_next(
    image: Bucket, intent: Intent, later_ms: int, expected: str
) -> None:
    assert kind_of(plan(intent, image, "op", NOW_MS + later_ms)) == expected


@pytest.mark.parametrize(
    ("image", "intent", "later_ms", "expected"),
    [
        (None, wants(rpm=1000), 0, "Fill"),
        (None, wants(), 0, UNSEEN),
        (None, wants(rpm=60_001), 0, UNSEEN),
        (USED._replace(fingerprint="other"), wants(rpm=1000), 0, "Fill"),
        (USED, wants(rpm=1000), 0, STORED),
        (USED, wants(rpm=1000), 10_000, "Fill"),
        (EMPTY, wants(rpm=1000), 0, UNSEEN),
        (ROBBED, wants(rpm=50_001, tpm=1000), 0, UNSEEN),
    ],
)
def test_the_first_write_does_what_the_last_image_suggests(
    image: Bucket | None, intent: Intent, later_ms: int, expected: str
) -> None:
    assert kind_of(plan_first(intent, image, "op", NOW_MS + later_ms)) == expected


def test_a_bucket_that_was_never_seen_is_guessed_to_be_full() -> None:
    write = plan_first(wants(rpm=1000), None, "op", NOW_MS)
    assert write == Fill(
        "op",
        NOW_MS,
        LIMITS.fingerprint,
        {"rpm": 1000},
        2,
        refilled_by_ms=NOW_MS - 2000,
        floors_milli={"rpm": 58_000, "tpm": 5_800_000},
        leaves_milli={"rpm": 59_000, "tpm": 6_000_000},
        shard_count=1,
        expires_at_s=None,
        parent_id="org",
        cascade=True,
    )


def test_a_full_bucket_may_have_been_used_by_others_a_while_ago() -> None:
    now_ms = NOW_MS + 60_000
    mine = plan_first(wants(ttl_seconds=420, rpm=1000), USED, "op", now_ms)
    assert isinstance(mine, Fill)
    theirs = take_tokens(refill(USED, now_ms - 20_000), {"rpm": 20_000, "tpm": 5}, 3)
    assert isinstance(apply(mine, theirs), Granted)
    for too_late in (
        take_tokens(refill(USED, now_ms - 19_999), {"rpm": 1}, 1),
        take_tokens(refill(USED, now_ms - 20_000), {"rpm": 20_001}, 1),
        theirs._replace(shard_count=2),
        theirs._replace(fingerprint="other"),
        theirs._replace(dormant=frozenset({"tpm"})),
    ):
        assert apply(mine, too_late) == Refused(too_late)


def test_taking_by_an_image_demands_what_made_it_right_on_that_image() -> None:
    image = EMPTY._replace(shard_count=2)
    write = plan_first(wants(rpm=3000), image, "op", NOW_MS + 2001)
    roofs_milli = {"rpm": 30_000 - 1001 - 1}
    assert write == Take(
        "op",
        NOW_MS + 2001,
        LIMITS.fingerprint,
        {"rpm": 3000},
        2,
        refilled_from_ms=NOW_MS,
        refilled_until_ms=None,
        floors_milli={"rpm": 3000},
        roofs_milli=roofs_milli,
        shard_count=2,
        unexpired=True,
    )


def test_taking_what_was_gained_demands_the_refill_and_the_gain_that_were_seen() -> None:
    write = plan(wants(rpm=1000), EMPTY, "op", NOW_MS + 1000)
    assert write == Take(
        "op",
        NOW_MS + 1000,
        LIMITS.fingerprint,
        {"rpm": 1000},
        2,
        refilled_from_ms=NOW_MS,
        refilled_until_ms=NOW_MS,
        floors_milli={"rpm": 0},
        roofs_milli={"rpm": 60_000 - 1000 - 1},
    )


def test_at_the_moment_of_the_refill_only_a_full_limit_is_above_its_roof() -> None:
    write = plan_first(wants(rpm=3000), EMPTY, "op", NOW_MS)
    assert isinstance(write, Take)
    assert write.roofs_milli == {"rpm": 59_999}


def test_a_bucket_that_is_short_is_shown_as_it_stands_now() -> None:
    short = plan(wants(OTHER, rpm=30_000), EMPTY, "op", NOW_MS + 20_000)
    assert short == Short(at(EMPTY, OTHER, NOW_MS + 20_000))
    assert short.bucket.cells["rpm"].tokens_milli == 20_000


def test_a_refill_goes_from_the_image_to_what_is_left_after_taking() -> None:
    write = plan(wants(ttl_seconds=420, rpm=4000), EMPTY, "op", NOW_MS + 5000)
    assert isinstance(write, Refill)
    assert (write.operation, write.at_ms, write.before) == ("op", NOW_MS + 5000, EMPTY)
    after = write.after
    assert after.cells["rpm"].tokens_milli == 1000
    assert after.refilled_at_ms == NOW_MS + 5000
    assert after.acquires == EMPTY.acquires + 2
    assert (after.parent_id, after.cascade) == ("org", True)
    assert after.expires_at_s == (NOW_MS + 5000) // 1000 + 420


@pytest.mark.parametrize("used_milli", [0, 10_000, 60_000])
def test_an_item_that_lost_count_of_its_own_writes_begins_anew(used_milli: int) -> None:
    uncounted = take_tokens(FULL, {"rpm": used_milli}, 1)
    intent = wants(tpm=1000, wcu=1250)._replace(metered=True)
    planned = plan(intent, uncounted, "op", NOW_MS + 1)
    assert isinstance(planned, Refill)
    outcome = apply(planned, uncounted)
    assert isinstance(outcome, Granted)
    assert outcome.bucket.cells[WCU].tokens_milli == 1_000_000 - 1250


def test_a_bucket_that_does_not_exist_starts_full() -> None:
    write = plan_create(wants(rpm=4000), "op", NOW_MS)
    assert isinstance(write, Create)
    assert write.bucket.cells["rpm"].tokens_milli == 56_000
    assert write.bucket.cells["tpm"].tokens_milli == 6_000_000
    assert write.bucket.acquires == 2
    assert (write.bucket.parent_id, write.bucket.cascade) == ("org", True)
    assert write.bucket.expires_at_s is None


def test_a_bucket_that_does_not_exist_cannot_hold_more_than_its_capacity() -> None:
    short = plan_create(wants(rpm=60_001), "op", NOW_MS)
    assert isinstance(short, Short)
    assert short.bucket.cells == FULL.cells


def test_a_restamp_takes_nothing() -> None:
    write = plan_restamp(wants(OTHER, rpm=5000), FULL, "op", NOW_MS)
    assert write.after.fingerprint == OTHER.fingerprint
    assert write.after.cells["rpm"].tokens_milli == 30_000
    assert write.after.cells["rpm"].consumed_milli == 0
    assert write.after.acquires == FULL.acquires


@pytest.mark.parametrize("now_ms", [1_000_000, 1_000_001, 1_000_999])
def test_a_bucket_never_expires_before_its_time(now_ms: int) -> None:
    write = plan_create(wants(ttl_seconds=3, rpm=1000), "op", now_ms)
    assert isinstance(write, Create)
    assert not write.bucket.is_expired(now_ms + 2999)
    assert write.bucket.is_expired(now_ms + 4000)


class TestMetered:
    """A bucket that counts its own writes, because its store limits them."""

    BUSY = take_tokens(
        full_bucket(LIMITS, NOW_MS, metered=True), {"rpm": 10_000, WCU: 1_000_000}, 9
    )

    @pytest.mark.parametrize(
        ("later_ms", "rpm", "expected"),
        [
            (0, 1000, "Crowded"),
            (0, 0, "Crowded"),
            (0, 50_001, "Short"),
            (1, 1000, GAINED),
            (1001, 1000, "Refill"),
            (5000, 56_000, "Short"),
        ],
    )
    def test_an_item_written_too_often_is_crowded_and_not_short(
        self, later_ms: int, rpm: int, expected: str
    ) -> None:
        intent = wants(rpm=rpm, wcu=1000)._replace(metered=True)
        assert kind_of(plan(intent, self.BUSY, "op", NOW_MS + later_ms)) == expected

    def test_the_allowance_of_writes_needs_no_roof(self) -> None:
        intent = wants(rpm=1000, wcu=1000)._replace(metered=True)
        image = take_tokens(full_bucket(LIMITS, NOW_MS, metered=True), {"rpm": 10_000}, 1)
        write = plan(intent, image, "op", NOW_MS + 2000)
        assert isinstance(write, Take)
        assert kind_of(write) == STORED
        assert write.roofs_milli == {"rpm": 57_999}
        assert isinstance(apply(write, image), Granted)

    def test_a_crowded_bucket_is_tried_all_the_same_by_a_first_write(self) -> None:
        intent = wants(rpm=1000, wcu=1000)._replace(metered=True)
        assert kind_of(plan_first(intent, self.BUSY, "op", NOW_MS)) == UNSEEN
        assert isinstance(plan_first(intent, None, "op", NOW_MS), Fill)

    def test_a_new_bucket_counts_from_its_first_write(self) -> None:
        intent = wants(rpm=1000, wcu=1000)._replace(metered=True)
        write = plan_create(intent, "op", NOW_MS)
        assert isinstance(write, Create)
        assert write.bucket.cells[WCU].tokens_milli == 999_000


def test_the_first_item_of_a_split_bucket_outlasts_the_others() -> None:
    first = USED._replace(shard_count=2, expires_at_s=5)
    intent = wants(ttl_seconds=420, rpm=1000)
    usual_s = NOW_MS // 1000 + 420
    assert stamped(intent, USED, NOW_MS).expires_at_s == usual_s
    assert stamped(intent, first._replace(shard=1), NOW_MS).expires_at_s == usual_s
    assert stamped(intent, first, NOW_MS).expires_at_s == usual_s + FIRST_ITEM_OUTLASTS_S


@quick
@given(st.integers(0, 60_000), st.integers(0, 61_000), st.integers(-2000, 70_000), st.booleans())
def test_a_write_planned_on_an_image_is_granted_on_that_image(
    taken_milli: int, wanted_milli: int, later_ms: int, restamp: bool
) -> None:
    image = take_tokens(FULL, {"rpm": taken_milli}, 1)
    intent = wants(OTHER if restamp else LIMITS, rpm=wanted_milli)
    planned = plan(intent, image, "op", NOW_MS + later_ms)
    if isinstance(planned, Short):
        assert planned.bucket.cells["rpm"].tokens_milli < wanted_milli
        return
    assert not isinstance(planned, Crowded)
    outcome = apply(planned, image)
    assert isinstance(outcome, Granted)
    standing = at(image, intent.limits, NOW_MS + later_ms).cells["rpm"].tokens_milli
    seen = image.cells["rpm"].tokens_milli if isinstance(planned, Take) else standing
    assert outcome.bucket.cells["rpm"].tokens_milli == seen - wanted_milli


def any_bucket(limits: LimitSet, data: st.DataObject) -> Bucket:
    """Any balance below the ceiling with any remainder, or full with none."""
    shard_count = data.draw(st.sampled_from([1, 1, 2, 4]))
    bucket = full_bucket(limits, NOW_MS + data.draw(st.integers(-2000, 2000)))
    bucket = bucket._replace(shard_count=shard_count, shard=shard_count - 1)

    def balance(name: str, cell: Cell) -> Cell:
        ceiling_milli = bucket.ceiling_milli(name)
        tokens_milli = ceiling_milli - data.draw(st.integers(0, 2000))
        last = bucket.rate(name).period_ms - 1 if tokens_milli < ceiling_milli else 0
        remainder = data.draw(st.sampled_from([0, last]))
        return cell._replace(tokens_milli=tokens_milli, remainder=remainder)

    cells = {name: balance(name, cell) for name, cell in bucket.cells.items()}
    return bucket._replace(cells=cells)


@settings(untimed, max_examples=200)
@given(limit_sets("rpm", "tpm", max_amount=4), st.data())
def test_taking_without_a_refill_is_exactly_refilling_and_taking(
    limits: LimitSet, data: st.DataObject
) -> None:
    """Whatever image the write was planned from: if it is granted, no time was credited that
    a full bucket let pass, and none was lost."""
    bucket = any_bucket(limits, data)
    image = data.draw(st.sampled_from([None, bucket, any_bucket(limits, data)]))
    now_ms = NOW_MS + data.draw(st.integers(-3000, 6000))
    takes_milli = {name: data.draw(st.sampled_from([0, 1, 500])) for name in limits.by_name}
    intent = Intent(limits, takes_milli, 1, None, None, False)
    write = plan_first(intent, image, "op", now_ms)
    outcome = apply(write, bucket)
    if isinstance(outcome, Refused) or isinstance(write, Refill):
        return
    assert isinstance(outcome, Granted)
    assert (
        refill(outcome.bucket, now_ms).cells
        == take_tokens(refill(bucket, now_ms), takes_milli, 1).cells
    )


def test_an_item_lives_on_until_its_debt_is_paid() -> None:
    expires_at_s = NOW_MS // 1000 + 100
    indebted = take_tokens(FULL, {"rpm": 120_500}, 1)._replace(expires_at_s=expires_at_s)
    longer = plan_outlasting(indebted, "op", NOW_MS)
    assert longer is not None
    assert longer.after == indebted._replace(expires_at_s=NOW_MS // 1000 + 121)
    assert plan_outlasting(longer.after, "op", NOW_MS) is None


@pytest.mark.parametrize("expires_at_s", [None, NOW_MS // 1000])
def test_an_item_without_debt_or_expiry_lives_as_long_as_it_did(expires_at_s: int | None) -> None:
    assert plan_outlasting(EMPTY._replace(expires_at_s=expires_at_s), "op", NOW_MS) is None
