"""The command that attacks says what it tried, and fails when something broke."""

from __future__ import annotations

from pathlib import Path

import pytest

from .__main__ import main
from .catalog import ATTACKS, Attack

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.title)
def test_every_attack_names_tests_that_exist(attack: Attack) -> None:
    assert all((ROOT / test).exists() for test in attack.tests)


@pytest.mark.slow
def test_an_attack_that_is_held_is_told_with_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    test = tmp_path / "test_held.py"
    test.write_text("def test_held(): pass\n")
    monkeypatch.setattr("tests.attacks.__main__.ATTACKS", (Attack("easy", (str(test),)),))
    assert main(["--seconds", "0"]) == 0
    assert "held    easy: 1 tests passed in 1 rounds" in capsys.readouterr().out


@pytest.mark.slow
def test_an_attack_that_breaks_something_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    test = tmp_path / "test_broken.py"
    test.write_text("def test_broken(): assert 1 == 2\n")
    monkeypatch.setattr("tests.attacks.__main__.ATTACKS", (Attack("hard", (str(test),)),))
    assert main(["--seconds", "60"]) == 1
    found = capsys.readouterr()
    assert "BROKEN  hard: 1 tests failed in 1 rounds" in found.out
    assert "assert 1 == 2" in found.err


def test_a_word_that_no_attack_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seconds", "0", "nonsense"])
    assert "no attack has these words" in capsys.readouterr().err
