from __future__ import annotations

import sys

import pytest

from . import __main__ as command
from .campaign import kept_seeds, run_seed
from .mutants import unclamped
from .world import World


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["simulation", *arguments])
    return command.main()


def test_the_simulation_command_counts_its_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--seeds", "3", "--start", "7") == 0
    assert f"100%  {3 + len(kept_seeds())} runs" in capsys.readouterr().out


def test_the_simulation_command_names_the_seed_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_wrongly(seed: int) -> World:
        return run_seed(seed, unclamped)

    monkeypatch.setattr(command, "run_seed", run_wrongly)
    assert call(monkeypatch, "--seeds", "200") == 1
    told = capsys.readouterr().err
    seed = told.split("--start ")[1].strip()
    assert f"seed {seed}: AssertionError" in told
    assert call(monkeypatch, "--seeds", "1", "--start", seed) == 1
    assert f"--start {seed}" in capsys.readouterr().err
