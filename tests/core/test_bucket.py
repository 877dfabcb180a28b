from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zae_limiter
from tests.support.strategies import limit_sets, limits, quick
from zae_limiter.core.bucket import (
    FIRST_ITEM_OUTLASTS_S,
    MAX_DORMANT,
    WCU_CELL,
    Bucket,
    BucketAddress,
    Cell,
    at,
    bucket_states,
    covers,
    credit,
    full_bucket,
    refill,
    split,
    stamp,
    take_tokens,
    time_to_fill_ms,
)
from zae_limiter.core.limit import BucketState, Limit, LimitSet
from zae_limiter.core.rates import Rate
from zae_limiter.core.validation import FORGOTTEN, WCU

NOW_MS = 1_000_000
PACKAGE = Path(zae_limiter.__file__).parent
STEPS_MS = st.lists(st.integers(0, 5000), max_size=20)


def bucket_with(limits: LimitSet, tokens_milli: dict[str, int], shard_count: int = 1) -> Bucket:
    full = full_bucket(limits, NOW_MS)
    cells = {
        name: cell._replace(tokens_milli=tokens_milli[name]) for name, cell in full.cells.items()
    }
    return full._replace(cells=cells, shard_count=shard_count)


def refill_in_steps(bucket: Bucket, steps_ms: list[int]) -> Bucket:
    for step_ms in steps_ms:
        bucket = refill(bucket, bucket.refilled_at_ms + step_ms)
    return bucket


def real_balance(bucket: Bucket, name: str) -> Fraction:
    """Tokens and the part of one that the remainder stands for, in millitokens."""
    cell = bucket.cells[name]
    return cell.tokens_milli + Fraction(cell.remainder, bucket.rate(name).period_ms)


class TestRefill:
    @quick
    @given(limit_sets("rpm", "tpm"), STEPS_MS, st.sampled_from([1, 2, 8]), st.data())
    def test_refilling_in_steps_is_refilling_once(
        self, limits: LimitSet, steps_ms: list[int], shard_count: int, data: st.DataObject
    ) -> None:
        debt = st.integers(-10_000_000, 0)
        start = {name: data.draw(debt, name) for name in limits.by_name}
        bucket = bucket_with(limits, start, shard_count)
        once = refill(bucket, NOW_MS + sum(steps_ms))
        assert refill_in_steps(bucket, steps_ms) == once

    @quick
    @given(limit_sets("rpm", "tpm"), STEPS_MS, st.sampled_from([1, 2, 8]), st.data())
    def test_every_step_gains_exactly_what_the_time_is_worth_up_to_the_ceiling(
        self, limits: LimitSet, steps_ms: list[int], shard_count: int, data: st.DataObject
    ) -> None:
        below = st.integers(1, 200_000)
        bucket = bucket_with(limits, dict.fromkeys(limits.by_name, 0), shard_count)
        start = {n: bucket.ceiling_milli(n) - data.draw(below, n) for n in limits.by_name}
        bucket = bucket_with(limits, start, shard_count)
        balances = {name: Fraction(tokens_milli) for name, tokens_milli in start.items()}
        for step_ms in steps_ms:
            bucket = refill(bucket, bucket.refilled_at_ms + step_ms)
            for name, limit in limits.by_name.items():
                per_ms = Fraction(limit.refill_amount, limit.refill_period_seconds * shard_count)
                gained = balances[name] + step_ms * per_ms
                balances[name] = min(gained, Fraction(bucket.ceiling_milli(name)))
                assert real_balance(bucket, name) == balances[name]

    def test_a_slow_limit_beside_a_fast_one_accrues_exactly_its_rate_each_day(self) -> None:
        limits = LimitSet.of([Limit.per_day("rpd", 100), Limit.per_second("rps", 1000)])
        bucket = take_tokens(full_bucket(limits, NOW_MS), {"rpd": 100_000}, 1)
        out_milli = 0
        end_ms = NOW_MS + 3 * 86_400_000
        for now_ms in [*range(NOW_MS, end_ms, 2749), end_ms]:
            bucket = refill(bucket, now_ms)
            gained_milli = bucket.cells["rpd"].tokens_milli
            out_milli += gained_milli
            bucket = take_tokens(bucket, {"rpd": gained_milli, "rps": 500_000}, 1)
        assert out_milli == 3 * 100_000

    def test_refilled_every_few_milliseconds_a_daily_limit_accrues_its_rate(self) -> None:
        limits = LimitSet.of([Limit.per_day("rpd", 100), Limit.per_second("rps", 1000)])
        bucket = take_tokens(full_bucket(limits, NOW_MS), {"rpd": 100_000}, 1)
        for step in range(1, 100_001):
            bucket = refill(bucket, NOW_MS + 3 * step)
        assert real_balance(bucket, "rpd") == Fraction(300_000 * 100_000, 86_400_000)

    @pytest.mark.parametrize("back_ms", [0, 1, 1000, NOW_MS])
    def test_time_never_goes_back(self, back_ms: int) -> None:
        limits = LimitSet.of([Limit.per_second("rps", 10)])
        bucket = bucket_with(limits, {"rps": 4000})
        assert refill(bucket, NOW_MS - back_ms) == bucket

    def test_a_clock_that_jumps_gains_no_time_twice(self) -> None:
        bucket = bucket_with(LimitSet.of([Limit.per_second("rps", 10)]), {"rps": 0})
        for now_ms, tokens_milli in [
            (NOW_MS + 100, 1000),
            (NOW_MS - 5000, 1000),
            (NOW_MS + 50, 1000),
            (NOW_MS + 100, 1000),
            (NOW_MS + 150, 1500),
        ]:
            bucket = refill(bucket, now_ms)
            assert bucket.cells["rps"].tokens_milli == tokens_milli

    def test_a_full_cell_has_no_remainder(self) -> None:
        limits = LimitSet.of([Limit.custom("x", 10, 7, 3)])
        for tokens_milli in (9998, 9999):
            cell = refill(bucket_with(limits, {"x": tokens_milli}), NOW_MS + 1).cells["x"]
            assert (cell.tokens_milli, cell.remainder) == (10_000, 0)

    def test_consumption_and_parameters_stay(self) -> None:
        limits = LimitSet.of([Limit.custom("x", 10, 7, 3)])
        bucket = take_tokens(full_bucket(limits, NOW_MS), {"x": 5000}, 3)
        after = refill(bucket, NOW_MS + 1000)
        assert after.cells["x"] == Cell(7333, Rate(10_000, 7000, 3000), 5000, 1000)
        assert after.acquires == 3


class TestShards:
    @quick
    @given(limits("rpm"), STEPS_MS, st.sampled_from([2, 4, 8, 16, 32]), st.integers(0, 10**7))
    def test_together_they_gain_what_one_bucket_gains(
        self, limit: Limit, steps_ms: list[int], shard_count: int, debt_milli: int
    ) -> None:
        """Exactly: what is not in a token yet is in a remainder."""
        whole = bucket_with(LimitSet.of([limit]), {"rpm": -debt_milli * shard_count})
        part = bucket_with(LimitSet.of([limit]), {"rpm": -debt_milli})
        once = refill(whole, NOW_MS + sum(steps_ms))
        total = Fraction(0)
        for shard in range(shard_count):
            item = part._replace(shard=shard, shard_count=shard_count)
            total += real_balance(refill_in_steps(item, steps_ms), "rpm")
        if once.cells["rpm"].tokens_milli < 0:
            assert total == real_balance(once, "rpm")
        else:
            assert total <= once.ceiling_milli("rpm")

    @quick
    @given(limits("rpm"), st.sampled_from([1, 2, 4, 8, 16, 32]))
    def test_full_shards_together_hold_the_capacity(self, limit: Limit, shard_count: int) -> None:
        later_ms = NOW_MS + int(limit.seconds_to_fill * 2000) + 1
        empty = bucket_with(LimitSet.of([limit]), {"rpm": 0})
        items = [empty._replace(shard=i, shard_count=shard_count) for i in range(shard_count)]
        full = [refill(item, later_ms).cells["rpm"].tokens_milli for item in items]
        assert sum(full) == limit.capacity * 1000

    def test_the_write_budget_is_each_shards_own(self) -> None:
        cell = Cell(0, Rate(1_000_000, 1_000_000, 1000))
        item = Bucket({WCU: cell, "x": cell}, NOW_MS, "", shard=1, shard_count=4)
        assert (item.ceiling_milli(WCU), item.ceiling_milli("x")) == (1_000_000, 250_000)
        assert (item.rate(WCU).period_ms, item.rate("x").period_ms) == (1000, 4000)
        after = refill(item, NOW_MS + 8)
        assert {name: c.tokens_milli for name, c in after.cells.items()} == {WCU: 8000, "x": 2000}


class TestSplit:
    LIMITS = LimitSet.of([Limit.per_minute("rpm", 60), Limit.custom("x", 5, 7, 3)])

    @quick
    @given(limits("x"), st.integers(-(10**7), 10**7), st.sampled_from([1, 2, 16]), st.data())
    def test_the_two_hold_what_the_one_held(
        self, limit: Limit, tokens_milli: int, shard_count: int, data: st.DataObject
    ) -> None:
        shard = data.draw(st.integers(0, shard_count - 1))
        whole = bucket_with(LimitSet.of([limit]), {"x": 0}, shard_count)._replace(shard=shard)
        held_milli = min(tokens_milli, whole.ceiling_milli("x"))
        remainder = data.draw(st.integers(0, whole.rate("x").period_ms - 1))
        cell = whole.cells["x"]._replace(tokens_milli=held_milli, remainder=remainder)
        whole = whole._replace(cells={"x": cell})
        lower, upper = split(whole, "g")
        assert lower.cells["x"].tokens_milli + upper.cells["x"].tokens_milli == held_milli
        assert real_balance(lower, "x") + real_balance(upper, "x") == real_balance(whole, "x")
        assert lower.ceiling_milli("x") + upper.ceiling_milli("x") == whole.ceiling_milli("x")
        for half in (lower, upper):
            assert half.cells["x"].tokens_milli <= half.ceiling_milli("x")

    @quick
    @given(limits("x"), st.integers(1, 10**7), STEPS_MS)
    def test_the_two_gain_what_the_one_gains(
        self, limit: Limit, debt_milli: int, steps_ms: list[int]
    ) -> None:
        whole = bucket_with(LimitSet.of([limit]), {"x": -debt_milli})
        lower, upper = (refill_in_steps(half, steps_ms) for half in split(whole, "g"))
        once = refill(whole, NOW_MS + sum(steps_ms))
        if once.cells["x"].tokens_milli < 0:
            assert real_balance(lower, "x") + real_balance(upper, "x") == real_balance(once, "x")

    def test_the_lower_keeps_the_history_and_the_upper_starts_its_own(self) -> None:
        whole = take_tokens(full_bucket(self.LIMITS, NOW_MS), {"rpm": 1001}, 7)
        whole = whole._replace(recent=("op",), parent_id="org", cascade=True, expires_at_s=9)
        lower, upper = split(whole, "g")
        assert (lower.shard, lower.shard_count, upper.shard, upper.shard_count) == (0, 2, 1, 2)
        assert lower.cells["rpm"] == Cell(29_500, Rate(60_000, 60_000, 60_000), 1001)
        assert upper.cells["rpm"] == Cell(29_499, Rate(60_000, 60_000, 60_000), 0)
        assert (lower.acquires, lower.recent) == (7, ("op",))
        assert (upper.acquires, upper.recent) == (0, ())
        assert (lower.expires_at_s, upper.expires_at_s) == (9 + FIRST_ITEM_OUTLASTS_S, 9)
        for half in (lower, upper):
            assert (half.parent_id, half.cascade, half.generation) == ("org", True, "g")
            assert (half.refilled_at_ms, half.fingerprint) == (NOW_MS, self.LIMITS.fingerprint)

    def test_writes_are_counted_by_item(self) -> None:
        whole = take_tokens(full_bucket(self.LIMITS, NOW_MS, metered=True), {WCU: 999_000}, 1)
        lower, upper = split(whole, "g")
        assert lower.cells[WCU].tokens_milli == 1000
        assert upper.cells[WCU] == WCU_CELL


class TestMetered:
    OLD = LimitSet.of([Limit.per_minute("rpm", 60)])
    NEW = LimitSet.of([Limit.per_minute("rpm", 20)])

    def test_an_item_takes_a_thousand_writes_a_second(self) -> None:
        assert Cell(1_000_000, Rate(1_000_000, 1_000_000, 1000)) == WCU_CELL

    def test_a_metered_bucket_counts_its_writes(self) -> None:
        assert full_bucket(self.OLD, NOW_MS, metered=True).cells[WCU] == WCU_CELL
        assert WCU not in full_bucket(self.OLD, NOW_MS).cells

    def test_it_goes_on_counting_under_other_limits(self) -> None:
        bucket = take_tokens(full_bucket(self.OLD, NOW_MS, metered=True), {WCU: 5000}, 1)
        after = at(bucket, self.NEW, NOW_MS, metered=True)
        assert after.cells[WCU].tokens_milli == WCU_CELL.tokens_milli - 5000
        assert after.cells["rpm"].capacity_milli == 20_000

    def test_a_bucket_from_a_time_without_begins_to_count(self) -> None:
        bucket = full_bucket(self.OLD, NOW_MS)
        assert stamp(bucket, self.NEW, metered=True).cells[WCU] == WCU_CELL


class TestStamp:
    OLD = LimitSet.of([Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 100)])

    def test_tokens_are_clamped_to_a_lower_ceiling(self) -> None:
        new = LimitSet.of([Limit.per_minute("rpm", 20), Limit.per_minute("tpm", 100)])
        after = stamp(bucket_with(self.OLD, {"rpm": 45_000, "tpm": 5000}), new)
        assert after.cells["rpm"] == Cell(20_000, Rate(20_000, 20_000, 60_000))
        assert after.cells["tpm"].tokens_milli == 5000
        assert after.fingerprint == new.fingerprint

    def test_a_higher_ceiling_keeps_the_tokens(self) -> None:
        new = LimitSet.of([Limit.per_minute("rpm", 600), Limit.per_minute("tpm", 100)])
        after = stamp(bucket_with(self.OLD, {"rpm": 45_000, "tpm": 5000}), new)
        assert after.cells["rpm"] == Cell(45_000, Rate(600_000, 600_000, 60_000))

    def test_debt_stays(self) -> None:
        new = LimitSet.of([Limit.per_minute("rpm", 1)])
        after = stamp(bucket_with(self.OLD, {"rpm": -7, "tpm": 0}), new)
        assert after.cells["rpm"].tokens_milli == -7

    NEW = LimitSet.of([Limit.per_minute("tpm", 100), Limit.per_day("rpd", 9)])

    def test_new_limits_start_full_and_removed_ones_that_are_full_disappear(self) -> None:
        full_milli = full_bucket(self.OLD, NOW_MS).cells["rpm"].tokens_milli
        after = stamp(bucket_with(self.OLD, {"rpm": full_milli, "tpm": 0}), self.NEW)
        tokens_milli = {name: cell.tokens_milli for name, cell in after.cells.items()}
        assert tokens_milli == {"tpm": 0, "rpd": 9000}
        assert not after.dormant

    def test_removed_limits_that_are_not_full_are_dormant(self) -> None:
        old = bucket_with(self.OLD, {"rpm": -5, "tpm": 0})
        after = stamp(old, self.NEW)
        assert after.cells["rpm"] == old.cells["rpm"]
        assert after.dormant == {"rpm"}

    def test_a_dormant_limit_that_is_put_in_force_again_is_as_it_was(self) -> None:
        old = bucket_with(self.OLD, {"rpm": 17, "tpm": 0})
        after = stamp(stamp(old, self.NEW), self.OLD)
        assert after.cells["rpm"] == old.cells["rpm"]
        assert after.dormant == set()

    @quick
    @given(limits("x"), st.integers(0, 10**9), st.integers(0, 10**9))
    def test_a_dormant_limit_refills_until_it_is_full_and_is_then_forgotten(
        self, limit: Limit, taken_milli: int, elapsed_ms: int
    ) -> None:
        in_force = bucket_with(LimitSet.of([limit]), {"x": 1000 * limit.capacity - taken_milli})
        dormant = stamp(in_force, self.NEW)
        later_ms = NOW_MS + elapsed_ms
        expected = refill(in_force, later_ms).cells["x"]
        is_full = expected.tokens_milli == expected.capacity_milli
        assert at(dormant, self.NEW, later_ms).cells.get("x") == (None if is_full else expected)

    def test_a_limit_that_comes_into_force_when_it_is_full_goes_on_counting(self) -> None:
        dormant = stamp(take_tokens(full_bucket(self.OLD, NOW_MS), {"rpm": 3000}, 1), self.NEW)
        after = at(dormant, self.OLD, NOW_MS + 3_600_000)
        assert after.cells["rpm"].consumed_milli == 3000

    def test_only_so_many_dormant_limits_are_kept_those_that_fill_last(self) -> None:
        empty = {f"x{n:02}": 0 for n in range(MAX_DORMANT + 3)}
        many = LimitSet.of([Limit.per_minute(n, 1 + i) for i, n in enumerate(empty)])
        after = stamp(bucket_with(many, {**empty, "x03": -1000}), self.NEW)
        assert len(after.dormant - {FORGOTTEN}) == MAX_DORMANT
        assert "x03" in after.dormant

    def test_a_limit_that_was_forgotten_starts_with_no_more_than_it_had(self) -> None:
        amounts = {f"x{n:02}": n * 500 for n in range(MAX_DORMANT + 20)}
        many = LimitSet.of([Limit.per_minute(n, 100) for n in amounts])
        for debt_milli in (0, 7000):
            held = {name: amount - debt_milli for name, amount in amounts.items()}
            after = stamp(bucket_with(many, held), self.NEW)
            later_ms = after.refilled_at_ms + 1234
            back = at(at(after, self.NEW, later_ms), many, later_ms)
            kept = refill(bucket_with(many, held), later_ms)
            for name in amounts:
                assert back.cells[name].tokens_milli <= kept.cells[name].tokens_milli, name
                known = name in after.dormant
                assert not known or back.cells[name] == kept.cells[name], name

    def test_limits_are_forgotten_for_good_when_the_last_of_them_is_full(self) -> None:
        amounts = {f"x{n:02}": n * 500 for n in range(MAX_DORMANT + 20)}
        many = LimitSet.of([Limit.per_minute(n, 100) for n in amounts])
        after = stamp(bucket_with(many, amounts), self.NEW)
        last_ms = max(time_to_fill_ms(bucket_with(many, amounts), name) for name in amounts)
        assert at(after, self.NEW, after.refilled_at_ms + last_ms).dormant == frozenset()

    def test_consumption_goes_on_counting(self) -> None:
        new = LimitSet.of([Limit.per_minute("rpm", 20)])
        after = stamp(take_tokens(full_bucket(self.OLD, NOW_MS), {"rpm": 3000}, 1), new)
        assert after.cells["rpm"].consumed_milli == 3000

    def test_time_stays(self) -> None:
        new = LimitSet.of([Limit.per_minute("rpm", 20)])
        assert stamp(full_bucket(self.OLD, NOW_MS), new).refilled_at_ms == NOW_MS

    def test_the_ceiling_is_the_shards_own(self) -> None:
        old = bucket_with(self.OLD, {"rpm": 30_000, "tpm": 0}, shard_count=2)
        new = LimitSet.of([Limit.per_minute("rpm", 20)])
        assert stamp(old, new).cells["rpm"].tokens_milli == 10_000
        wider = LimitSet.of([Limit.per_minute("rpm", 20), Limit.per_day("rpd", 7)])
        assert stamp(old, wider).cells["rpd"].tokens_milli == 3500

    @quick
    @given(limits("x"), limits("x"), st.sampled_from([1, 2, 8]), st.data())
    def test_a_remainder_never_grows(
        self, old: Limit, new: Limit, shard_count: int, data: st.DataObject
    ) -> None:
        bucket = bucket_with(LimitSet.of([old]), {"x": -1}, shard_count)
        remainder = data.draw(st.integers(0, bucket.rate("x").period_ms - 1))
        cell = bucket.cells["x"]._replace(remainder=remainder)
        before = bucket._replace(cells={"x": cell})
        after = stamp(before, LimitSet.of([new]))
        assert 0 <= after.cells["x"].remainder < after.rate("x").period_ms
        assert real_balance(after, "x") <= real_balance(before, "x")
        lost = real_balance(before, "x") - real_balance(after, "x")
        assert lost < Fraction(1, after.rate("x").period_ms)

    def test_a_clamped_cell_has_no_remainder(self) -> None:
        limits = LimitSet.of([Limit.custom("x", 10, 7, 3)])
        cell = full_bucket(limits, NOW_MS).cells["x"]
        cell = cell._replace(tokens_milli=9000, remainder=2999)
        bucket = Bucket({"x": cell}, NOW_MS, limits.fingerprint)
        lower = LimitSet.of([Limit.custom("x", 9, 7, 3)])
        assert stamp(bucket, lower).cells["x"].remainder == 0


class TestAt:
    OLD = LimitSet.of([Limit.per_second("rps", 10)])
    NEW = LimitSet.of([Limit.per_second("rps", 100)])

    def test_under_the_same_limits_it_refills(self) -> None:
        bucket = bucket_with(self.OLD, {"rps": 0})
        assert at(bucket, self.OLD, NOW_MS + 100) == refill(bucket, NOW_MS + 100)

    def test_time_before_a_change_counts_at_the_old_rate(self) -> None:
        bucket = bucket_with(self.OLD, {"rps": 0})
        after = at(bucket, self.NEW, NOW_MS + 100)
        assert after.cells["rps"].tokens_milli == 1000
        assert after.fingerprint == self.NEW.fingerprint
        assert refill(after, NOW_MS + 200).cells["rps"].tokens_milli == 11_000


class TestTakeAndCredit:
    LIMITS = LimitSet.of([Limit.per_second("rps", 10), Limit.per_second("tps", 10)])

    def test_take_moves_tokens_to_consumption(self) -> None:
        before = full_bucket(self.LIMITS, NOW_MS)
        after = take_tokens(before, {"rps": 12_000}, 2)
        cell = after.cells["rps"]
        assert (cell.tokens_milli, cell.consumed_milli, after.acquires) == (-2000, 12_000, 2)
        assert after.cells["tps"] is before.cells["tps"]
        assert before.cells["rps"].tokens_milli == 10_000

    @pytest.mark.parametrize(
        ("takes_milli", "enough"),
        [
            ({"rps": 9000}, True),
            ({"rps": 9001}, False),
            ({"rps": 0, "tps": 0}, True),
            ({"rps": 1, "tps": 1}, False),
            ({}, True),
        ],
    )
    def test_balances_cover_what_they_hold(self, takes_milli: dict[str, int], enough: bool) -> None:
        assert covers(bucket_with(self.LIMITS, {"rps": 9000, "tps": -1}), takes_milli) is enough

    @pytest.mark.parametrize(
        ("amount_milli", "expected"),
        [
            (999, Cell(9999, Rate(10_000, 10_000, 1000), -999, remainder=7)),
            (1000, Cell(10_000, Rate(10_000, 10_000, 1000), -1000)),
            (3000, Cell(10_000, Rate(10_000, 10_000, 1000), -3000)),
        ],
    )
    def test_credit_stops_at_the_ceiling_and_counts_all_of_it(
        self, amount_milli: int, expected: Cell
    ) -> None:
        cell = full_bucket(self.LIMITS, NOW_MS).cells["rps"]
        bucket = Bucket({"rps": cell._replace(tokens_milli=9000, remainder=7)}, NOW_MS, "")
        assert credit(bucket, "rps", amount_milli) == expected


def test_users_see_one_state_for_each_limit_of_theirs() -> None:
    limits = LimitSet.of([Limit.per_minute("rpm", 60)])
    bucket = take_tokens(full_bucket(limits, NOW_MS), {"rpm": 1500}, 1)
    bucket = bucket._replace(cells={**bucket.cells, WCU: Cell(1, Rate(1, 1, 1))})
    address = BucketAddress("ns", "key", "gpt-4")
    assert bucket_states(address, bucket) == [
        BucketState("key", "gpt-4", "rpm", 58_500, NOW_MS, 60_000, 60_000, 60_000, 1500)
    ]


@pytest.mark.parametrize(
    ("expires_at_s", "now_ms", "expired"),
    [(None, 10**15, False), (5, 4999, False), (5, 5000, True), (5, 5001, True)],
)
def test_a_bucket_expires_at_its_second(
    expires_at_s: int | None, now_ms: int, expired: bool
) -> None:
    assert Bucket({}, 0, "", expires_at_s=expires_at_s).is_expired(now_ms) is expired


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_module_but_bucket_builds_a_bucket_by_position(path: Path) -> None:
    """Eleven fields in a row are easily swapped."""
    if path.relative_to(PACKAGE).as_posix() == "core/bucket.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Bucket":
            assert len(node.args) <= 3, f"{path}:{node.lineno}"
