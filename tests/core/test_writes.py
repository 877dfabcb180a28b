from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.kinds import kind_of
from zae_limiter.core.apply import apply
from zae_limiter.core.bucket import (
    REMEMBERED_OPERATIONS,
    Bucket,
    Cell,
    full_bucket,
    split,
    take_tokens,
)
from zae_limiter.core.idempotency import fence_at
from zae_limiter.core.limit import Limit, LimitSet
from zae_limiter.core.planner import Intent, plan, plan_restamp
from zae_limiter.core.writes import (
    ABSENT,
    Adjust,
    Create,
    Granted,
    Outcome,
    Refill,
    Refused,
    Take,
    Write,
)

NOW_MS = 1_000_000
RPS = Limit.per_second("rps", 1, burst=10)
TPS = Limit.custom("tps", 100, 7, 3)
LIMITS = LimitSet.of([RPS, TPS])
LOWER = LimitSet.of([Limit.per_second("rps", 1, burst=5), TPS])
OTHER = LimitSet.of([TPS, Limit.per_second("new", 10)])

FULL = full_bucket(LIMITS, NOW_MS)
# 4 rps and 20 tps are left, and a part of a millitoken of tps.
BUCKET = take_tokens(FULL, {"rps": 6000, "tps": 80_000}, 1)._replace(recent=("earlier",))


def wants(limits: LimitSet = LIMITS, **takes_milli: int) -> Intent:
    return Intent(limits, takes_milli, 1, None, None, False)


def change(bucket: Bucket, name: str, edit: Callable[[Cell], Cell]) -> Bucket:
    return bucket._replace(cells={**bucket.cells, name: edit(bucket.cells[name])})


def with_tokens(bucket: Bucket, name: str, tokens_milli: int) -> Bucket:
    return change(bucket, name, lambda cell: cell._replace(tokens_milli=tokens_milli))


def granted(outcome: Outcome) -> Bucket:
    assert isinstance(outcome, Granted)
    return outcome.bucket


def tokens(bucket: Bucket) -> dict[str, int]:
    return {name: cell.tokens_milli for name, cell in bucket.cells.items()}


def consumed(bucket: Bucket) -> dict[str, int]:
    return {name: cell.consumed_milli for name, cell in bucket.cells.items()}


ROOFS_MILLI = {"rps": 9000, "tps": 99_000}


def take_stored(**takes_milli: int) -> Take:
    since_ms, limits = NOW_MS - 400, LIMITS.fingerprint
    return Take("op", NOW_MS, limits, takes_milli, 1, since_ms, None, takes_milli, ROOFS_MILLI)


def take_unseen(**takes_milli: int) -> Take:
    return take_stored(**takes_milli)._replace(unexpired=True)


def take_gained(**takes_milli: int) -> Take:
    """What is taken beyond the balance has been gained since the last refill."""
    return take_stored(**takes_milli)._replace(
        refilled_from_ms=NOW_MS,
        refilled_until_ms=NOW_MS,
        floors_milli={name: amount_milli - 500 for name, amount_milli in takes_milli.items()},
    )


def refill(at_ms: int, bucket: Bucket = BUCKET, *, rps: int) -> Refill:
    planned = plan(wants(rps=rps), bucket, "op", at_ms)
    assert isinstance(planned, Refill)
    return planned


EVERY_WRITE: list[Write] = [
    Create("op", NOW_MS, FULL),
    refill(NOW_MS + 5000, rps=5000),
    take_stored(rps=1000),
    take_gained(rps=4500),
    Adjust("op", NOW_MS, {"rps": 1000}, 0),
    take_unseen(rps=1000),
]


class TestAnyWrite:
    @pytest.mark.parametrize("write", EVERY_WRITE[1:], ids=kind_of)
    def test_only_create_makes_a_bucket(self, write: Write) -> None:
        assert apply(write, None) is ABSENT

    @pytest.mark.parametrize("write", EVERY_WRITE[1:], ids=kind_of)
    def test_a_write_that_lands_is_remembered_first(self, write: Write) -> None:
        assert granted(apply(write, BUCKET)).recent == ("op", "earlier")

    @pytest.mark.parametrize("write", EVERY_WRITE, ids=kind_of)
    def test_a_remembered_write_changes_nothing_and_is_answered_again(self, write: Write) -> None:
        landed = granted(apply(write, None if isinstance(write, Create) else BUCKET))
        later = granted(apply(Adjust("later", NOW_MS, {"rps": 500}, 0), landed))
        assert apply(write, later) == Granted(later)

    def test_a_bucket_remembers_a_few_writes_and_forgets_the_oldest(self) -> None:
        bucket = BUCKET
        for number in range(REMEMBERED_OPERATIONS + 1):
            bucket = granted(apply(Adjust(f"op-{number}", NOW_MS, {}, 0), bucket))
        newest = [f"op-{number}" for number in range(REMEMBERED_OPERATIONS, 0, -1)]
        assert list(bucket.recent) == newest

    @pytest.mark.parametrize("write", EVERY_WRITE, ids=kind_of)
    def test_nothing_that_was_passed_in_is_changed(self, write: Write) -> None:
        cells = dict(BUCKET.cells)
        apply(write, BUCKET)
        assert BUCKET.cells == cells


class TestCreate:
    def test_puts_the_bucket_where_there_is_none(self) -> None:
        made = granted(apply(Create("op", NOW_MS, FULL), None))
        assert made == FULL._replace(recent=("op",), fence=fence_at(NOW_MS))

    def test_is_refused_where_there_is_one(self) -> None:
        assert apply(Create("op", NOW_MS, FULL), BUCKET) == Refused(BUCKET)


@pytest.mark.parametrize("make", [take_stored, take_unseen], ids=["stored", "unseen"])
class TestTakingWhatIsStored:
    def test_takes_counts_and_leaves_the_refill_time(self, make: Callable[..., Write]) -> None:
        after = granted(apply(make(rps=4000, tps=1), BUCKET))
        assert tokens(after) == {"rps": 0, "tps": 19_999}
        assert consumed(after) == {"rps": 10_000, "tps": 80_001}
        assert (after.acquires, after.refilled_at_ms) == (2, NOW_MS)

    def test_is_refused_when_one_limit_is_a_millitoken_short(
        self, make: Callable[..., Write]
    ) -> None:
        assert apply(make(rps=4001, tps=1), BUCKET) == Refused(BUCKET)
        assert apply(make(rps=1, tps=20_001), BUCKET) == Refused(BUCKET)

    def test_a_limit_of_which_nothing_is_asked_may_be_in_debt(
        self, make: Callable[..., Write]
    ) -> None:
        bucket = with_tokens(BUCKET, "tps", -1)
        assert tokens(granted(apply(make(rps=1000, tps=0), bucket))) == {"rps": 3000, "tps": -1}
        assert apply(make(rps=1000, tps=1), bucket) == Refused(bucket)

    def test_is_refused_under_other_limits(self, make: Callable[..., Write]) -> None:
        bucket = BUCKET._replace(fingerprint=OTHER.fingerprint)
        assert apply(make(rps=1000), bucket) == Refused(bucket)

    def test_is_refused_when_the_last_refill_is_too_old(self, make: Callable[..., Write]) -> None:
        old = BUCKET._replace(refilled_at_ms=NOW_MS - 401)
        assert apply(make(rps=1000), old) == Refused(old)
        just = BUCKET._replace(refilled_at_ms=NOW_MS - 400)
        assert tokens(granted(apply(make(rps=1000), just)))["rps"] == 3000

    def test_is_refused_when_a_limit_it_takes_is_above_its_roof(
        self, make: Callable[..., Write]
    ) -> None:
        high = with_tokens(BUCKET, "rps", 9001)
        assert apply(make(rps=1000), high) == Refused(high)
        at_roof = with_tokens(BUCKET, "rps", 9000)
        assert tokens(granted(apply(make(rps=1000), at_roof)))["rps"] == 8000

    def test_a_limit_of_which_nothing_is_asked_has_no_roof(
        self, make: Callable[..., Write]
    ) -> None:
        high = with_tokens(BUCKET, "tps", 100_000)
        assert tokens(granted(apply(make(rps=1000, tps=0), high)))["tps"] == 100_000

    def test_is_refused_after_a_split(self, make: Callable[..., Write]) -> None:
        split = BUCKET._replace(shard_count=2)
        assert apply(make(rps=1000), split) == Refused(split)


class TestTakingWhatWasGained:
    def test_may_leave_a_balance_below_zero_until_the_next_refill(self) -> None:
        after = granted(apply(take_gained(rps=4500), BUCKET))
        assert (tokens(after)["rps"], consumed(after)["rps"]) == (-500, 10_500)
        assert after.refilled_at_ms == NOW_MS

    def test_is_refused_when_one_limit_is_a_millitoken_short(self) -> None:
        assert apply(take_gained(rps=4501), BUCKET) == Refused(BUCKET)

    @pytest.mark.parametrize("refilled_at_ms", [NOW_MS - 1, NOW_MS + 1])
    def test_is_refused_after_another_refill_than_was_seen(self, refilled_at_ms: int) -> None:
        raced = BUCKET._replace(refilled_at_ms=refilled_at_ms)
        assert apply(take_gained(rps=4500), raced) == Refused(raced)

    def test_is_refused_when_a_limit_it_takes_is_above_its_roof(self) -> None:
        high = with_tokens(BUCKET, "rps", 9001)
        assert apply(take_gained(rps=4500), high) == Refused(high)


@pytest.mark.parametrize("make", [take_stored, take_gained, take_unseen])
def test_a_taking_is_refused_when_another_client_took_the_limit_away(
    make: Callable[..., Write],
) -> None:
    robbed = BUCKET._replace(cells={"rps": BUCKET.cells["rps"]})
    assert apply(make(tps=1000), robbed) == Refused(robbed)
    assert tokens(granted(apply(make(rps=1000, tps=0), robbed))) == {"rps": 3000}


class TestExpiry:
    EXPIRING = BUCKET._replace(expires_at_s=NOW_MS // 1000)

    def test_a_taking_from_an_unseen_bucket_is_refused_from_the_second_of_expiry_on(self) -> None:
        assert apply(take_unseen(rps=1000), self.EXPIRING) == Refused(self.EXPIRING)

    def test_a_taking_from_an_unseen_bucket_is_granted_before_it_expires(self) -> None:
        later = BUCKET._replace(expires_at_s=NOW_MS // 1000 + 1)
        assert tokens(granted(apply(take_unseen(rps=1000), later)))["rps"] == 3000

    def test_a_taking_from_a_seen_bucket_is_granted_though_it_has_expired(self) -> None:
        assert tokens(granted(apply(take_stored(rps=1000), self.EXPIRING)))["rps"] == 3000

    def test_a_refill_puts_the_expiry_off(self) -> None:
        intent = wants(rps=5000)._replace(ttl_seconds=70)
        write = plan(intent, self.EXPIRING, "op", NOW_MS + 2000)
        assert isinstance(write, Refill)
        assert granted(apply(write, self.EXPIRING)).expires_at_s == NOW_MS // 1000 + 72


class TestRefill:
    def test_credits_every_limit_and_takes_what_is_asked(self) -> None:
        after = granted(apply(refill(NOW_MS + 2000, rps=5000), BUCKET))
        assert tokens(after) == {"rps": 1000, "tps": 24_666}
        assert after.cells["tps"].remainder == 2000
        assert (after.acquires, after.refilled_at_ms) == (2, NOW_MS + 2000)

    def test_adds_its_change_to_what_others_took_meanwhile(self) -> None:
        write = refill(NOW_MS + 2000, rps=5000)
        raced = take_tokens(BUCKET, {"rps": 1000, "tps": 20_000}, 1)
        after = granted(apply(write, raced))
        assert tokens(after) == {"rps": 0, "tps": 4666}
        assert consumed(after) == {"rps": 12_000, "tps": 100_000}
        assert after.acquires == 3

    def test_floor_refuses_what_would_overdraw_a_charged_limit(self) -> None:
        raced = take_tokens(BUCKET, {"rps": 1001}, 1)
        assert apply(refill(NOW_MS + 2000, rps=5000), raced) == Refused(raced)

    def test_floor_does_not_ask_of_limits_that_only_gain(self) -> None:
        raced = take_tokens(BUCKET, {"tps": 90_000}, 0)
        after = granted(apply(refill(NOW_MS + 2000, rps=5000), raced))
        assert tokens(after)["tps"] == 20_000 - 90_000 + 4666

    @pytest.mark.parametrize("taken_milli", [1, 5000, 5001])
    def test_is_refused_when_a_limit_that_it_lowers_holds_less_by_now(
        self, taken_milli: int
    ) -> None:
        write = plan_restamp(wants(LOWER), FULL, "op", NOW_MS)
        raced = take_tokens(FULL, {"rps": taken_milli}, 1)
        assert apply(write, raced) == Refused(raced)
        assert tokens(granted(apply(write, FULL)))["rps"] == 5000

    def test_is_refused_when_a_limit_that_it_fills_holds_less_by_now(self) -> None:
        """Of 10 rps that 4 were to grow to, with 2 too many, only 1 would be too many now."""
        write = refill(NOW_MS + 8000, rps=5000)
        assert tokens(granted(apply(write, BUCKET)))["rps"] == 5000
        raced = take_tokens(BUCKET, {"rps": 1000}, 1)
        assert apply(write, raced) == Refused(raced)

    def test_roof_refuses_when_tokens_came_back_meanwhile(self) -> None:
        raced = with_tokens(BUCKET, "tps", 20_001)
        assert apply(refill(NOW_MS + 2000, rps=5000), raced) == Refused(raced)

    def test_remainder_refuses_when_a_limit_was_full_meanwhile(self) -> None:
        write = refill(NOW_MS + 2000, rps=5000)
        raced = change(BUCKET, "tps", lambda cell: cell._replace(remainder=1))
        assert apply(write, raced) == Refused(raced)

    @pytest.mark.parametrize(
        "raced",
        [
            BUCKET._replace(refilled_at_ms=NOW_MS + 1),
            BUCKET._replace(refilled_at_ms=NOW_MS - 1),
            BUCKET._replace(fingerprint=LOWER.fingerprint),
            BUCKET._replace(shard_count=2),
        ],
        ids=["rf later", "rf earlier", "restamped", "split"],
    )
    def test_is_refused_on_another_image_than_it_was_planned_on(self, raced: Bucket) -> None:
        assert apply(refill(NOW_MS + 2000, rps=5000), raced) == Refused(raced)

    def test_puts_other_limits_in_force(self) -> None:
        write = plan_restamp(wants(OTHER), BUCKET, "op", NOW_MS)
        after = granted(apply(write, take_tokens(BUCKET, {"tps": 5000}, 1)))
        assert after.fingerprint == OTHER.fingerprint
        assert tokens(after) == {"tps": 15_000, "new": 10_000, "rps": 4000}
        assert consumed(after) == {"tps": 85_000, "new": 0, "rps": 6000}
        assert after.dormant == {"rps"}
        assert after.acquires == 2

    def test_charges_and_refunds_reach_a_limit_that_is_not_in_force(self) -> None:
        restamp = plan_restamp(wants(OTHER), BUCKET, "op", NOW_MS)
        after = granted(apply(restamp, BUCKET))
        for delta_milli in (-1000, 2000):
            adjust = Adjust(f"op{delta_milli}", NOW_MS, {"rps": delta_milli}, 0)
            after = granted(apply(adjust, after))
        assert tokens(after)["rps"] == 3000

    def test_forgets_no_limit_that_was_charged_meanwhile(self) -> None:
        full = with_tokens(BUCKET, "rps", 10_000)
        write = plan_restamp(wants(OTHER), full, "op", NOW_MS)
        assert "rps" not in write.after.cells
        raced = with_tokens(BUCKET, "rps", 9999)
        assert apply(write, raced) == Refused(raced)

    def test_is_refused_when_other_limits_came_out_of_force(self) -> None:
        dormant = granted(apply(plan_restamp(wants(OTHER), BUCKET, "a", NOW_MS), BUCKET))
        taken = take_tokens(dormant, {"new": 1}, 1)
        back = granted(apply(plan_restamp(wants(LIMITS), taken, "b", NOW_MS), taken))
        assert back.fingerprint == BUCKET.fingerprint
        assert back.dormant == {"new"}
        write = plan_restamp(wants(LIMITS), BUCKET, "c", NOW_MS)
        assert apply(write, back) == Refused(back)

    def test_stamps_parent_and_cascade(self) -> None:
        intent = wants(rps=5000)._replace(parent_id="org", cascade=True)
        write = plan(intent, BUCKET, "op", NOW_MS + 2000)
        assert isinstance(write, Refill)
        after = granted(apply(write, BUCKET))
        assert (after.parent_id, after.cascade) == ("org", True)

    def test_a_split_hands_on_half_of_what_is_there(self) -> None:
        write = Refill("op", NOW_MS, BUCKET, split(BUCKET, "g")[0])
        after = granted(apply(write, take_tokens(BUCKET, {"rps": 2000}, 1)))
        assert (tokens(after), after.shard_count) == ({"rps": 0, "tps": 10_000}, 2)

    def test_a_split_is_refused_when_half_of_what_was_there_is_there_no_more(self) -> None:
        write = Refill("op", NOW_MS, BUCKET, split(BUCKET, "g")[0])
        raced = take_tokens(BUCKET, {"rps": 2001}, 1)
        assert apply(write, raced) == Refused(raced)

    def test_debt_can_be_split(self) -> None:
        indebted = with_tokens(BUCKET, "rps", -3000)
        write = Refill("op", NOW_MS, indebted, split(indebted, "g")[0])
        after = granted(apply(write, take_tokens(indebted, {"rps": 500}, 0)))
        assert tokens(after)["rps"] == -2000

    def test_keeps_the_place_of_a_shard(self) -> None:
        shard = BUCKET._replace(shard=1, shard_count=2)
        after = granted(apply(refill(NOW_MS + 2000, shard, rps=5000), shard))
        assert (after.shard, after.shard_count) == (1, 2)


class TestAdjust:
    def test_charges_below_zero(self) -> None:
        after = granted(apply(Adjust("op", NOW_MS, {"rps": 9000}, 0), BUCKET))
        assert tokens(after)["rps"] == -5000
        assert consumed(after)["rps"] == 15_000

    def test_charges_a_single_millitoken(self) -> None:
        after = granted(apply(Adjust("op", NOW_MS, {"rps": 1}, 0), BUCKET))
        assert (tokens(after)["rps"], consumed(after)["rps"]) == (3999, 6001)

    def test_gives_back_and_takes_acquires_back(self) -> None:
        after = granted(apply(Adjust("op", NOW_MS, {"rps": -6000, "tps": -1}, -1), BUCKET))
        assert tokens(after) == {"rps": 10_000, "tps": 20_001}
        assert consumed(after) == {"rps": 0, "tps": 79_999}
        assert after.acquires == 0

    def test_a_refund_above_the_ceiling_is_lost_but_counted(self) -> None:
        bucket = change(BUCKET, "rps", lambda cell: cell._replace(remainder=7))
        after = granted(apply(Adjust("op", NOW_MS, {"rps": -7000}, 0), bucket))
        assert after.cells["rps"].tokens_milli == 10_000
        assert after.cells["rps"].consumed_milli == -1000
        assert after.cells["rps"].remainder == 0

    def test_the_ceiling_is_the_shards_own(self) -> None:
        shard = BUCKET._replace(shard=1, shard_count=2)
        after = granted(apply(Adjust("op", NOW_MS, {"rps": -7000}, 0), shard))
        assert tokens(after)["rps"] == 5000

    def test_one_limit_may_be_charged_and_another_given_back(self) -> None:
        after = granted(apply(Adjust("op", NOW_MS, {"rps": 1000, "tps": -1000}, 0), BUCKET))
        assert tokens(after) == {"rps": 3000, "tps": 21_000}

    def test_unknown_limits_are_passed_over(self) -> None:
        after = granted(apply(Adjust("op", NOW_MS, {"gone": 1000, "rps": 1000}, 0), BUCKET))
        assert tokens(after) == {"rps": 3000, "tps": 20_000}

    def test_does_not_refill_and_asks_for_no_limits(self) -> None:
        bucket = BUCKET._replace(fingerprint="other", expires_at_s=1)
        after = granted(apply(Adjust("op", NOW_MS + 9000, {"rps": 1000}, 0), bucket))
        assert after.refilled_at_ms == NOW_MS
        assert (after.fingerprint, after.expires_at_s) == ("other", 1)
