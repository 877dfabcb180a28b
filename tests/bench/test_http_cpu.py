from __future__ import annotations

import pytest
from bench.http_cpu import SUBJECTS, measure

OURS = [name for name in SUBJECTS if "zae-limiter, memory" in name or "no limits" in name]


@pytest.mark.parametrize("name", OURS)
def test_a_limited_request_is_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.http_cpu._REQUESTS", 3)
    assert measure(name) > 0
