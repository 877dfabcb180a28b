from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.exceptions import InvalidLimitError, InvalidNameError
from zae_limiter.core.limit import Limit
from zae_limiter.core.limit_syntax import format_limit, format_rate
from zae_limiter.core.validation import MAX_AMOUNT, MAX_PERIOD_SECONDS, WCU

NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_.\-]{0,63}", fullmatch=True).filter(lambda n: n != WCU)
AMOUNTS = st.integers(1, MAX_AMOUNT)
UNITS = {"sec": 1, "min": 60, "hour": 3600, "day": 86_400}
PERIODS = st.one_of(
    st.integers(1, MAX_PERIOD_SECONDS),
    st.builds(int.__mul__, st.sampled_from(list(UNITS.values())), st.integers(1, 400)),
)
LIMITS = st.builds(Limit, NAMES, AMOUNTS, AMOUNTS, PERIODS)


@given(LIMITS)
def test_a_printed_limit_can_be_typed(limit: Limit) -> None:
    assert Limit.parse(format_limit(limit)) == limit


@given(NAMES, AMOUNTS, AMOUNTS, st.integers(1, 400), st.sampled_from(list(UNITS)))
def test_the_typed_form_of_a_limit_is_parsed(
    name: str, rate: int, burst: int, count: int, unit: str
) -> None:
    parsed = Limit.parse(f"{name}:{rate}/{count}{unit}:{burst}")
    assert parsed == Limit(name, burst, rate, count * UNITS[unit])


@given(st.text())
def test_any_text_is_a_limit_or_refused(text: str) -> None:
    try:
        limit = Limit.parse(text)
    except (ValueError, InvalidNameError):
        return
    assert Limit.parse(format_limit(limit)) == limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("rpm:1000", Limit.per_minute("rpm", 1000)),
        ("rpm:1000/min", Limit.per_minute("rpm", 1000)),
        ("rpm:1000:1500", Limit.per_minute("rpm", 1000, burst=1500)),
        ("rps:10/sec:20", Limit.per_second("rps", 10, burst=20)),
        ("tpd:5/day", Limit.per_day("tpd", 5)),
        ("tph:5/1hour", Limit.per_hour("tph", 5)),
        ("t.p-m_:50000/5min", Limit("t.p-m_", 50_000, 50_000, 300)),
        (" rpm: 1,000/min (burst: 2,000) ", Limit.per_minute("rpm", 1000, burst=2000)),
        ("rpm: 100/minute; burst 20", Limit.per_minute("rpm", 100, burst=20)),
        ("rps:7 per second;burst 9", Limit.per_second("rps", 7, burst=9)),
    ],
)
def test_documented_forms_of_limits_are_parsed(text: str, limit: Limit) -> None:
    assert Limit.parse(text) == limit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rpm",
        "rpm:",
        ":100",
        "rpm:ten",
        "rpm:-1",
        "rpm:1.5",
        "rpm:10/",
        "rpm:10/week",
        "rpm:10/minutes",
        "rpm:10/min:",
        "rpm:10/min:20:30",
        "rpm:1,00",
        "rpm:0",
        "rpm:10:0",
        "rpm:10/0min",
        "rpm:\u0661\u0660",
    ],
)
def test_other_forms_of_limits_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not name:rate|must be positive"):
        Limit.parse(text)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("100/minute", Limit.per_minute("requests", 100)),
        ("100/minute; burst 20", Limit.per_minute("requests", 100, burst=20)),
        ("100 per 5min", Limit("requests", 100, 100, 300)),
        ("rpm: 100/day", Limit.per_day("rpm", 100)),
    ],
)
def test_a_text_without_a_name_takes_the_name_that_is_given(text: str, limit: Limit) -> None:
    assert Limit.parse(text, "requests") == limit


@pytest.mark.parametrize("text", ["100", "100; burst 20", "/minute", "100/minute; burst"])
def test_a_text_without_a_name_must_say_its_period(text: str) -> None:
    with pytest.raises(InvalidLimitError, match="is not name:rate"):
        Limit.parse(text, "requests")


@pytest.mark.parametrize("text", ["wcu:10", "1rpm:10", "r#m:10"])
def test_invalid_names_of_limits_are_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        Limit.parse(text)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit.per_minute("rpm", 1000), "rpm: 1,000/min"),
        (Limit.per_minute("rpm", 1000, burst=1500), "rpm: 1,000/min (burst: 1,500)"),
        (Limit("rpm", 7, 7, 300), "rpm: 7/5min"),
        (Limit("rpm", 7, 7, 90), "rpm: 7/90sec"),
        (Limit("rpm", 7, 7, 7200), "rpm: 7/2hour"),
        (Limit.per_day("rpm", 7), "rpm: 7/day"),
    ],
)
def test_limits_are_printed_with_the_largest_exact_unit(limit: Limit, text: str) -> None:
    assert format_limit(limit) == text
    assert format_rate(limit) in text
