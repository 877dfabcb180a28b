from __future__ import annotations

import time

import pytest

from zae_limiter.cli.patience import patience


def test_a_long_operation_reports_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with patience("Purging", silence_s=0.01):
        while "so far" not in (told := capsys.readouterr().err):
            time.sleep(0.005)
    assert told.startswith("Purging: 0 s so far\n")


def test_a_quick_operation_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with patience("Purging"):
        pass
    assert capsys.readouterr() == ("", "")
