from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter.core.apply import apply
from zae_limiter.core.bucket import REMEMBERED_OPERATIONS, Bucket
from zae_limiter.core.idempotency import Landing, landing, operation_id, planned_at_ms
from zae_limiter.core.writes import Adjust, Granted

NOW_MS = 1_700_000_000_000
OURS = operation_id(NOW_MS, "-ours")
EMPTY = Bucket({}, NOW_MS, "")


def others(*ages_ms: int) -> tuple[str, ...]:
    return tuple(operation_id(NOW_MS - age_ms, f"-{age_ms}") for age_ms in ages_ms)


@quick
@given(st.integers(0, 2**44 - 1), st.text("abc123", max_size=12))
def test_an_id_tells_its_time(at_ms: int, suffix: str) -> None:
    operation = operation_id(at_ms, suffix)
    assert planned_at_ms(operation) == at_ms
    assert operation.endswith(suffix)


@quick
@given(st.integers(0, 2**44 - 1), st.integers(0, 2**44 - 1))
def test_ids_sort_by_time(at_ms: int, later_ms: int) -> None:
    one, two = operation_id(at_ms, "x"), operation_id(later_ms, "x")
    assert (one < two) == (at_ms < later_ms)


@pytest.mark.parametrize(
    ("recent", "expected"),
    [
        (None, Landing.LOST),
        ((), Landing.LOST),
        ((OURS,), Landing.LANDED),
        ((*others(0, 0, 0), OURS), Landing.LANDED),
        (others(0, 1, 2), Landing.LOST),
        (others(0, 1, 2, 3), Landing.UNKNOWN),
        (others(-5000, 0, 14_999, 15_000), Landing.UNKNOWN),
        (others(-5000, 0, 14_999, 15_001), Landing.LOST),
        (others(60_000, 60_001, 60_002, 60_003), Landing.LOST),
    ],
)
def test_the_memory_of_a_bucket_proves_whether_a_write_landed(
    recent: tuple[str, ...] | None, expected: Landing
) -> None:
    bucket = None if recent is None else EMPTY._replace(recent=recent)
    assert landing(OURS, bucket) is expected


def test_one_operation_that_was_known_before_is_proof_that_none_was_forgotten() -> None:
    recent = others(0, 1, 2, 3)
    for known in (recent[:1], recent[3:]):
        assert landing(OURS, EMPTY._replace(recent=recent), known) is Landing.LOST
    assert landing(OURS, EMPTY._replace(recent=(*recent[:3], OURS)), recent) is Landing.LANDED
    assert landing(OURS, EMPTY._replace(recent=recent), others(4, 5)) is Landing.UNKNOWN


@quick
@given(st.lists(st.integers(0, 20_000), max_size=8), st.integers(0, 8), st.booleans())
def test_it_never_proves_what_is_not_so(delays_ms: list[int], position: int, lands: bool) -> None:
    """Writes that land one after the other, each planned at most 15 s before it landed."""
    bucket, now_ms = EMPTY, NOW_MS
    ours = ""
    known: tuple[str, ...] = ()
    for number, delay_ms in enumerate(delays_ms):
        now_ms += delay_ms
        if number == position:
            ours, known = operation_id(now_ms, "-ours"), bucket.recent
            if lands:
                bucket = _landed(ours, bucket)
        bucket = _landed(operation_id(now_ms - delay_ms % 15_000, f"-{number}"), bucket)
    if not ours:
        return
    impossible = Landing.LOST if lands else Landing.LANDED
    assert landing(ours, bucket) is not impossible
    assert landing(ours, bucket, known) is not impossible


def _landed(operation: str, bucket: Bucket) -> Bucket:
    outcome = apply(Adjust(operation, NOW_MS, {}, 0), bucket)
    assert isinstance(outcome, Granted)
    assert len(outcome.bucket.recent) <= REMEMBERED_OPERATIONS
    return outcome.bucket
