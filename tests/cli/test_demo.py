"""The demo as users run it: real processes, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli_runner import Zael
from tests.support.programs import ignoring_interrupts
from zae_limiter.cli.demo.crew import Crew
from zae_limiter.cli.demo.scenario import Job, jobs, set_up
from zae_limiter.cli.target import Target

PATIENCE_S = 60
ROOT = Path(__file__).parents[2]
PROC = Path("/proc")


@contextmanager
def demo(
    directory: Path, *args: str, parent: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A demo whose temporary files go to a directory of the test's."""
    command = [*parent, sys.executable, "-m", "zae_limiter.cli", "demo", *args]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code and the rest of the output. On stderr, nothing may be said but that a
    slow machine needs time."""
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert all(line.endswith(" s so far") for line in errors.splitlines())
    return process.returncode, out


def wait_for_progress(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if "calls admitted" in line:
            return
    raise AssertionError("the demo ended before it got anywhere")


def children(pid: int) -> list[int]:
    """The processes that this one has started, in order."""
    if not PROC.is_dir():
        listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
        return sorted(int(line) for line in listed.stdout.split())
    pids = [int(each.name) for each in PROC.glob("[0-9]*")]
    return sorted(child for child in pids if status(child)[1] == str(pid))


def status(pid: int) -> list[str]:
    """The state of a process and its parent; X when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ["X", ""]
    # The name, in parentheses, may hold anything.
    return text.rpartition(")")[2].split()[:2]


def wait_for_children(process: subprocess.Popen[str], count: int) -> list[int]:
    deadline = time.monotonic() + PATIENCE_S
    while len(found := children(process.pid)) < count:
        assert time.monotonic() < deadline, "the workers were never started"
        time.sleep(0.02)
    return found


def is_running(pid: int) -> bool:
    """Return whether a process runs; zombies do not count."""
    if PROC.is_dir():
        return status(pid)[0] not in "XZ"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "workers were left behind"
        time.sleep(0.01)


def test_a_demo_of_two_processes_reports_kept_limits_as_json(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "2", "--workers", "2", "--json") as process:
        code, out = finish(process)
    report = json.loads(out)
    assert (code, report["holds"], report["failures"]) == (0, True, [])
    assert [worker["style"] for worker in report["workers"]] == ["asyncio", "threads"]
    assert all(worker["admitted"] and worker["refused"] for worker in report["workers"])
    by_account = {(each["entity_id"], each["name"]): each for each in report["limits"]}
    organisation = by_account["acme", "rps"]
    keys = [by_account["acme-web", "rps"], by_account["acme-batch", "rps"]]
    assert organisation["admitted"] == sum(key["admitted"] for key in keys)
    assert organisation["admitted"] == sum(worker["admitted"] for worker in report["workers"])
    assert all(each["whole_run"]["taken"] <= each["whole_run"]["allowed"] for each in keys)
    assert any(each["corrected"] < 0 for each in report["limits"]), "no call failed"
    assert not list(tmp_path.iterdir())


def test_a_demo_needs_no_package_that_make_demo_does_not_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = re.search(r"^DEMO_NEEDS := (.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert needs is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    missing = {re.split(r"\W", each)[0] for each in project["dependencies"]} - {*needs[1].split()}
    assert missing >= {"boto3", "botocore"}
    hide = f"import sys; sys.modules.update(dict.fromkeys({sorted(missing)!r}))"
    (tmp_path / "sitecustomize.py").write_text(hide)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with demo(tmp_path, "--seconds", "0.2", "--workers", "2", "--json") as process:
        code, out = finish(process)
    assert (code, json.loads(out)["holds"]) == (0, True)


@pytest.mark.slow
def test_a_demo_into_a_pipe_prints_lines_and_no_control_codes(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "1.5", "--workers", "1") as process:
        code, out = finish(process)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("1 process on sqlite:///")
    assert lines[1].startswith("   1 s: ")
    assert lines[-1] == "OK: every limit was kept."
    assert "\x1b" not in out
    assert max(map(len, lines[1:])) <= 80


@pytest.mark.slow
def test_a_demo_on_a_named_store_leaves_it_as_it_was(tmp_path: Path, zael: Zael) -> None:
    zael.out("namespace", "register", "tenant-a")
    before = zael.json("namespace", "list")
    args = ("--seconds", "0.5", "--workers", "1", "--json", "--url", zael.url)
    with demo(tmp_path, *args) as process:
        code, out = finish(process)
    assert (code, json.loads(out)["holds"]) == (0, True)
    assert zael.json("namespace", "list") == before
    assert zael.json("namespace", "orphans") == []


@pytest.mark.parametrize(
    "parent",
    [
        pytest.param((), id="plain_parent", marks=pytest.mark.slow),
        pytest.param(ignoring_interrupts(), id="parent_ignores_interrupts"),
    ],
)
def test_ctrl_c_ends_the_workers_and_still_prints_the_check(
    tmp_path: Path, parent: Sequence[str]
) -> None:
    with demo(tmp_path, "--seconds", "600", "--workers", "2", parent=parent) as process:
        wait_for_progress(process)
        workers = wait_for_children(process, 2)
        process.send_signal(signal.SIGINT)
        code, out = finish(process)
    assert code == 130
    assert "Interrupted: this is what ran so far." in out
    assert out.endswith("OK: every limit was kept.\n")
    assert "| acme " in out
    wait_until_gone(workers)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ctrl_c_while_the_demo_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600", "--workers", "2") as process:
        assert process.stdout is not None
        assert "2 processes on" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        code, _ = finish(process)
    assert code == 130
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_worker_that_dies_is_reported_and_ends_the_demo(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600", "--workers", "3") as process:
        wait_for_progress(process)
        workers = wait_for_children(process, 3)
        os.kill(workers[1], signal.SIGKILL)
        code, out = finish(process)
    assert code == 1
    assert " was killed by signal 9\n" in out
    assert "NOT OK: every limit was kept, but the demo failed." in out
    wait_until_gone(workers)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_worker_that_hangs_is_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600", "--workers", "2", "--json") as process:
        workers = wait_for_children(process, 2)
        os.kill(workers[0], signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        code, out = finish(process)
    assert code == 130
    failures = json.loads(out)["failures"]
    assert [text.partition(" did ")[2] for text in failures] == ["not stop in 5 s"]
    wait_until_gone(workers)


@pytest.mark.slow
def test_a_demo_that_is_terminated_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600", "--workers", "2") as process:
        workers = wait_for_children(process, 2)
        process.send_signal(signal.SIGTERM)
        code, _ = finish(process)
    assert code == 128 + signal.SIGTERM
    wait_until_gone(workers)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_workers_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600", "--workers", "2") as process:
        wait_for_progress(process)
        workers = wait_for_children(process, 2)
        process.kill()
        process.communicate()
    wait_until_gone(workers)


def test_workers_that_cannot_begin_are_reported(zael: Zael) -> None:
    """A worker finds no store at its URL: it says so and does not hang."""
    job = Job(1, "asyncio", zael.url, "nowhere", 1, 0.01)
    done = subprocess.run(
        [sys.executable, "-m", "zae_limiter.cli.demo.worker", job.to_text()],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "No limiter found" in done.stderr
    assert not done.stdout


def test_a_log_that_cannot_be_read_is_reported(zael: Zael, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(zael.path.parent), prepend=os.pathsep)
    (zael.path.parent / "sitecustomize.py").write_text("print('noise')")
    with Target(zael.url, "demo").open() as repository, Crew(jobs(zael.url, "demo", 1)) as crew:
        set_up(repository)
        crew.start()
        assert crew.stop() == ["worker 1 wrote what is no record: noise"]


def test_a_demo_on_a_url_that_processes_cannot_share_is_refused(zael: Zael) -> None:
    assert "memory:// lives and ends with one process" in zael.error("demo", "--url", "memory://")
    assert "No limiter found" in zael.error("demo", "--url", "sqlite:////nowhere/at/all.db")


@pytest.mark.parametrize(
    "args",
    [("--workers", "0"), ("--workers", "33"), ("--seconds", "0"), ("--seconds", "3601")],
    ids=" ".join,
)
def test_demo_options_out_of_bounds_are_refused(zael: Zael, args: tuple[str, ...]) -> None:
    assert "is not in the range" in zael.error("demo", *args, code=2)


def test_many_workers_ask_no_more_than_a_few() -> None:
    few, many = jobs("sqlite:///l.db", "n", 4), jobs("sqlite:///l.db", "n", 32)
    assert len(many) / many[0].pause_s == pytest.approx(len(few) / few[0].pause_s)
    assert [job.style for job in few] == ["asyncio", "asyncio", "asyncio", "threads"]
    assert [job.style for job in jobs("sqlite:///l.db", "n", 1)] == ["asyncio"]
    assert Job.from_text(few[3].to_text()) == few[3]
