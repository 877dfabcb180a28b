"""Gains are exact, and nobody but `core.rates` computes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zae_limiter
from tests.support.strategies import quick
from zae_limiter.core.rates import Rate, rescale_remainder

PACKAGE = Path(zae_limiter.__file__).parent
# The documented formulas of one limit, and checks that must not use the code they check.
OWN_ARITHMETIC = {"core/rates.py", "bucket.py", "testing/history.py", "cli/demo/check.py"}
RATE_WORDS = {
    "period_ms",
    "refill_amount",
    "refill_amount_milli",
    "refill_period_ms",
    "refill_period_seconds",
    "refill_rate",
}
UNITS = {"MILLI", "1000"}

rates = st.builds(Rate, st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**5))
spans_ms = st.integers(0, 10**6)


@st.composite
def balances(draw: st.DrawFn) -> tuple[Rate, int, int]:
    """A rate, a balance below its ceiling, debt included, and a remainder."""
    rate = draw(rates)
    tokens_milli = rate.ceiling_milli - draw(st.integers(1, 3 * rate.ceiling_milli))
    return rate, tokens_milli, draw(st.integers(0, rate.period_ms - 1))


@quick
@given(balances(), spans_ms)
def test_a_refill_adds_the_exact_gain_up_to_the_ceiling(
    balance: tuple[Rate, int, int], span_ms: int
) -> None:
    rate, tokens_milli, remainder = balance
    exact = tokens_milli + Fraction(remainder + span_ms * rate.amount_milli, rate.period_ms)
    held_milli, rest = rate.refill(tokens_milli, remainder, 7, 7 + span_ms)
    if exact < rate.ceiling_milli:
        assert held_milli + Fraction(rest, rate.period_ms) == exact
    else:
        assert (held_milli, rest) == (rate.ceiling_milli, 0)


@quick
@given(balances(), spans_ms, spans_ms)
def test_two_refills_in_a_row_give_what_one_gives(
    balance: tuple[Rate, int, int], first_ms: int, second_ms: int
) -> None:
    rate, tokens_milli, remainder = balance
    halfway = rate.refill(tokens_milli, remainder, 0, first_ms)
    twice = rate.refill(*halfway, first_ms, first_ms + second_ms)
    assert twice == rate.refill(tokens_milli, remainder, 0, first_ms + second_ms)


@quick
@given(rates, spans_ms)
def test_the_gain_of_any_remainder_lies_between_the_least_and_the_most(
    rate: Rate, span_ms: int
) -> None:
    def gain(remainder: int) -> int:
        return (span_ms * rate.amount_milli + remainder) // rate.period_ms

    assert rate.least_gain_milli(3, 3 + span_ms) == gain(0)
    assert rate.most_gain_milli(3, 3 + span_ms) == gain(rate.period_ms - 1)


@quick
@given(balances(), st.integers(1, 10**7))
def test_the_time_to_gain_is_the_first_millisecond_at_which_the_amount_is_there(
    balance: tuple[Rate, int, int], gain_milli: int
) -> None:
    rate, _, remainder = balance
    unbounded = rate._replace(ceiling_milli=10**30)
    time_ms = rate.time_to_gain_ms(gain_milli, remainder)
    assert unbounded.refill(0, remainder, 0, time_ms)[0] >= gain_milli
    assert time_ms == 0 or unbounded.refill(0, remainder, 0, time_ms - 1)[0] < gain_milli


@quick
@given(rates, spans_ms)
def test_a_limit_at_its_roof_is_not_full_yet_and_one_above_it_may_be(
    rate: Rate, span_ms: int
) -> None:
    roof_milli, most = rate.roof_milli(5, 5 + span_ms), rate.period_ms - 1
    assert rate.refill(roof_milli, most, 5, 5 + span_ms)[0] < rate.ceiling_milli
    assert rate.refill(roof_milli + 1, most, 5, 5 + span_ms)[0] == rate.ceiling_milli


@quick
@given(rates, spans_ms)
def test_a_limit_at_its_floor_is_full_and_one_below_it_may_not_be(rate: Rate, span_ms: int) -> None:
    floor_milli = rate.floor_milli(5, 5 + span_ms)
    assert rate.refill(floor_milli, 0, 5, 5 + span_ms)[0] == rate.ceiling_milli
    assert rate.refill(floor_milli - 1, 0, 5, 5 + span_ms)[0] < rate.ceiling_milli


@quick
@given(rates, st.sampled_from([1, 2, 4, 32]), spans_ms)
def test_the_shards_of_a_limit_gain_and_hold_together_what_the_whole_does(
    rate: Rate, shard_count: int, span_ms: int
) -> None:
    parts = [rate.part(shard, shard_count) for shard in range(shard_count)]
    assert sum(part.ceiling_milli for part in parts) == rate.ceiling_milli
    gains = [Fraction(span_ms * part.amount_milli, part.period_ms) for part in parts]
    assert sum(gains) == Fraction(span_ms * rate.amount_milli, rate.period_ms)


@quick
@given(rates, rates, st.data())
def test_a_remainder_under_another_rate_stays_the_same_part_of_a_millitoken(
    old: Rate, new: Rate, data: st.DataObject
) -> None:
    remainder = data.draw(st.integers(0, old.period_ms - 1))
    lost = Fraction(remainder, old.period_ms) - Fraction(
        rescale_remainder(remainder, old, new), new.period_ms
    )
    assert 0 <= lost < Fraction(1, new.period_ms)


def _words(node: ast.AST) -> set[str]:
    names = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
    attributes = (n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute))
    return {*names, *attributes}


def _is_unit(node: ast.AST) -> bool:
    return ast.unparse(node) in UNITS


def rate_arithmetic(tree: ast.AST) -> Iterator[str]:
    """Products and quotients of a refill amount or period. To change its unit is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Mod
        ):
            operands: list[ast.expr] = [node.left, node.right]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"divmod", "Fraction"}:
            operands = node.args
        else:
            continue
        if not any(map(_is_unit, operands)) and any(_words(o) & RATE_WORDS for o in operands):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_module_but_rates_computes_with_a_refill_amount_or_period(path: Path) -> None:
    if path.relative_to(PACKAGE).as_posix() not in OWN_ARITHMETIC:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert list(rate_arithmetic(tree)) == []


def test_rate_arithmetic_is_recognised_and_a_change_of_unit_is_not() -> None:
    found = rate_arithmetic(
        ast.parse(
            "a = elapsed_ms * cell.rate.amount_milli // rate.period_ms\n"
            "b = divmod(x, period_ms)\n"
            "c = limit.refill_amount * MILLI\n"
            "d = limit.refill_period_seconds * 1000\n"
        )
    )
    assert set(found) == {
        "elapsed_ms * cell.rate.amount_milli // rate.period_ms",
        "divmod(x, period_ms)",
    }
