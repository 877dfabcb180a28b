from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("memory/zae-limiter-sync", "sqlite/zae-limiter-async", "processes-limited/zae-limiter-sync")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench", *arguments]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What a quick run of our own cases prints and writes."""
    path = tmp_path_factory.mktemp("bench") / "new" / "results.json"
    only = [argument for name in OURS for argument in ("--only", name)]
    done = bench("--quick", *only, "--rounds", "2", "--json", str(path))
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return done.stdout, results


def test_results_tell_what_was_measured_where(ran: tuple[str, dict[str, Any]]) -> None:
    _, results = ran
    assert results["format"] == 1
    assert set(results["machine"]) == {"python", "sqlite", "platform", "cpus", "load"}
    assert results["scale"]["rounds"] == 2
    assert [w["name"] for w in results["workloads"]] == ["memory", "sqlite", "processes-limited"]
    rows = [row for workload in results["workloads"] for row in workload["rows"]]
    assert [row["name"] for row in rows] == [name.split("/")[1] for name in OURS]
    for row in rows:
        assert row["distribution"] == "zae-limiter"
        assert row["does"]["limits"] == 2
        assert row["does"]["atomic"] == "all"
        assert row["does"]["refund"] == "yes"


def test_every_round_has_all_figures(ran: tuple[str, dict[str, Any]]) -> None:
    _, results = ran
    for workload in results["workloads"]:
        for row in workload["rows"]:
            assert len(row["rounds"]) == 2
            for found in [row["median"], *row["rounds"]]:
                assert found["calls_per_s"] > 0
                assert found["cpu_us"] > 0
                assert 0 < found["p50_us"] <= found["p99_us"]
                assert found["admitted"] > 0
                assert found["stray"] == 0


def test_four_processes_keep_the_limits(ran: tuple[str, dict[str, Any]]) -> None:
    _, results = ran
    row = results["workloads"][2]["rows"][0]
    assert row["does"]["processes"] == 4
    assert row["keeps_limits"] is True
    assert all(found["admitted"] <= found["bound"] for found in row["rounds"])


def test_the_table_has_a_section_for_each_workload(ran: tuple[str, dict[str, Any]]) -> None:
    printed, results = ran
    for workload in results["workloads"]:
        assert workload["title"] in printed
    assert printed.count("zae-limiter, sync") == 2
    assert printed.count("zae-limiter, async") == 1


def test_every_case_has_a_name_of_its_own() -> None:
    names = bench("--list").stdout.split()
    assert len(names) == len(set(names)) > 50
    assert set(OURS) <= set(names)


def test_unknown_names_are_refused() -> None:
    done = bench("--only", "no-such-workload")
    assert done.returncode == 2
    assert "--list" in done.stderr


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    run = subprocess.Popen(
        command("--only", OURS[2], "--rounds", "1000", "--json", str(tmp_path / "results.json")),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 60
        while len(workers_in(tmp_path)) < 4:
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == 130, errors
    deadline = time.monotonic() + 30
    while workers_in(tmp_path) and time.monotonic() < deadline:
        # A process that has been killed takes a moment to leave a busy machine.
        time.sleep(0.05)
    assert workers_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def workers_in(folder: Path) -> list[int]:
    """Processes that were told to keep their files there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_worker(entry, folder):
            found.append(int(entry.name))
    return found


def _is_worker(entry: Path, folder: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"bench.worker" in words and any(str(folder).encode() in word for word in words)
