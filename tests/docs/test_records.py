"""The guide to records shows what a limiter stores on DynamoDB, and what it asks for."""

from __future__ import annotations

import re

import pytest
from bench.scale.markdown import section

from tests.docs import record_reference
from tests.docs.month_costs import MONTHS, Month, months
from zae_limiter import RateLimiter, Repository, schema

TEXT = record_reference.PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_tables_of_the_guide_are_those_of_a_real_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "set by the guide")
    assert record_reference.render(TEXT) == TEXT, "run python -m tests.docs.record_reference"


def test_the_guide_shows_the_calculated_months() -> None:
    assert section(TEXT, "months") == months(), "run python -m tests.docs.record_reference"


@pytest.mark.parametrize(
    "sort_key",
    [
        schema.sk_meta(),
        schema.sk_state(),
        schema.sk_config(),
        schema.sk_config("{resource}"),
        schema.sk_usage("{resource}", "{window}"),
        schema.sk_audit("{event}"),
        schema.sk_version(),
        schema.sk_resources(),
        schema.sk_entity_config_resources(),
        schema.sk_namespace("{name}"),
        schema.sk_nsid("{ns}"),
    ],
)
def test_the_guide_shows_every_kind_of_record(sort_key: str) -> None:
    assert f"| `{sort_key}` |" in section(TEXT, "records")


def test_every_question_of_the_guide_is_a_method() -> None:
    asked = " ".join([*record_reference.READING, *record_reference.CHANGING])
    for name in re.findall(r"`(\w+)`", asked):
        assert hasattr(RateLimiter, name) or hasattr(Repository, name), name


def test_the_cost_of_a_month_is_units_times_prices() -> None:
    month = Month("one", acquires=1_000_000, entities=(1,), processes=1)
    writes, *_ = month.dollars()
    assert writes == pytest.approx(2 * 0.625)
    small, large = MONTHS
    assert sum(small.dollars()) < 10 < 1_000 < sum(large.dollars())
