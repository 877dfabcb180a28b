from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SHARED = (
    "shared-50-keys/zae-limiter",
    "shared-50-keys/bare",
    "shared-hot-50/zae-limiter",
    "shared-hot-50/zae-limiter-0.17.0",
    "shared-refusals/zae-limiter",
    "config_cache_hit/zae-limiter",
    "config_version_atomic/zae-limiter",
)
OURS = ("memory/zae-limiter-sync", "sqlite/zae-limiter-async", "processes-limited/zae-limiter-sync")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench", *arguments]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )


def quick_run(path: Path, names: Sequence[str], rounds: int) -> tuple[str, dict[str, Any]]:
    only = [argument for name in names for argument in ("--only", name)]
    done = bench("--quick", *only, "--rounds", str(rounds), "--json", str(path))
    assert done.returncode == 0, done.stderr
    begun = [line.partition(": ")[2] for line in done.stderr.splitlines()]
    assert begun == list(dict.fromkeys(name.partition("/")[0] for name in names))
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return done.stdout, results


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What a quick run of our own cases prints and writes."""
    return quick_run(tmp_path_factory.mktemp("bench") / "new" / "results.json", OURS, 2)


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared") / "results.json"


@pytest.fixture(scope="module")
def shared(shared_file: Path) -> tuple[str, dict[str, Any]]:
    """The same of cases that need a server."""
    return quick_run(shared_file, SHARED, 1)


def rows_of(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By the names of workload and case."""
    return {f"{w['name']}/{r['name']}": r for w in results["workloads"] for r in w["rows"]}


def test_results_tell_what_was_measured_where(ran: tuple[str, dict[str, Any]]) -> None:
    _, results = ran
    assert results["format"] == 2
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


@pytest.mark.slow
def test_cases_with_a_server_are_measured_and_counted(
    shared: tuple[str, dict[str, Any]],
) -> None:
    rows = rows_of(shared[1])
    assert list(rows) == list(SHARED)
    for row in rows.values():
        assert row["median"]["calls_per_s"] > 0
        assert row["median"]["stray"] == 0
        assert row["counted"]["acquires"] > 0
    assert rows["shared-hot-50/zae-limiter-0.17.0"]["version"] == "0.17.0"
    assert rows["shared-50-keys/bare"]["counted"]["wcu"] == 1


@pytest.mark.slow
def test_acquires_that_meet_share_their_calls(shared: tuple[str, dict[str, Any]]) -> None:
    rows = rows_of(shared[1])
    alone, together = rows["shared-50-keys/zae-limiter"], rows["shared-hot-50/zae-limiter"]
    assert alone["counted"]["calls"] == alone["counted"]["wcu"] == 1
    assert together["counted"]["calls"] == together["counted"]["wcu"] < 0.5


@pytest.mark.slow
def test_a_cached_configuration_costs_no_call(shared: tuple[str, dict[str, Any]]) -> None:
    counted = rows_of(shared[1])["config_cache_hit/zae-limiter"]["counted"]
    assert counted["calls"] == counted["rcu"] == 0


@pytest.mark.slow
def test_targets_are_held_against_what_was_found(shared: tuple[str, dict[str, Any]]) -> None:
    printed, results = shared
    bare, refusals = results["targets"]
    assert bare["what"].startswith("50 keys")
    assert refusals["met"]
    assert refusals["what"] in printed


@pytest.mark.slow
def test_a_file_is_rendered_as_markdown(
    shared: tuple[str, dict[str, Any]], shared_file: Path
) -> None:
    done = bench("--render", str(shared_file))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for workload in shared[1]["workloads"]:
        assert f"### {workload['title']}" in lines
    heading = "| limiter | per second | CPU µs | p50 µs | p99 µs |"
    assert sum(line.startswith(heading) for line in lines) == len(shared[1]["workloads"])
    assert sum(line.startswith("| zae-limiter 0.17.0 |") for line in lines) == 1


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"format": 1}')
    done = bench("--render", str(tmp_path / "old.json"))
    assert done.returncode == 1
    assert "format 1" in done.stderr


def test_every_case_has_a_name_of_its_own() -> None:
    names = bench("--list").stdout.split()
    assert len(names) == len(set(names)) > 50
    assert {*OURS, *SHARED} <= set(names)


def test_unknown_names_are_refused() -> None:
    done = bench("--only", "no-such-workload")
    assert done.returncode == 2
    assert "--list" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "processes"), [(OURS[2], 4), (SHARED[0], 2)])
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, name: str, processes: int) -> None:
    """Neither those that are measured nor the server that they call."""
    run = subprocess.Popen(
        command("--only", name, "--rounds", "1000", "--json", str(tmp_path / "results.json")),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        while len(processes_in(tmp_path)) < processes:
            assert run.poll() is None, run.communicate()[1]
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate()
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == 130, errors
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def processes_in(folder: Path) -> list[int]:
    """Processes that keep their files there, or were told to."""
    numbers = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in numbers if _is_in(entry, folder)]


def _is_in(entry: Path, folder: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        is_told = b"bench.worker" in words and any(str(folder).encode() in word for word in words)
        return is_told or (entry / "cwd").readlink().is_relative_to(folder)
    except OSError:
        return False
