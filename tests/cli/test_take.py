"""Tokens taken from a shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cli_runner import Zael
from tests.support.programs import hearing_interrupts

PYTHON = sys.executable


@pytest.fixture
def limited(zael: Zael) -> Zael:
    zael.out("resource", "set-defaults", "jobs", "-l", "runs:3/day", "-l", "cpu:100/day")
    return zael


def left(zael: Zael, entity_id: str = "key-1") -> dict[str, int]:
    found: dict[str, int] = zael.json("available", entity_id, "jobs")["available"]
    return found


def test_tokens_are_taken_until_a_limit_refuses(limited: Zael) -> None:
    for _ in range(3):
        assert limited.out("acquire", "key-1", "jobs", "-t", "runs:1", "-t", "cpu:10") == (
            "Took 1 runs, 10 cpu\n"
        )
    message = limited.error("acquire", "key-1", "jobs", "-t", "runs:1", "-t", "cpu:10", code=3)
    assert "Rate limit exceeded for key-1/jobs: [runs]" in message
    assert left(limited) == {"runs": 0, "cpu": 70}


def test_a_refusal_is_told_in_json_too(limited: Zael) -> None:
    taken = limited.json("acquire", "key-1", "jobs", "-t", "runs:3")
    assert (taken["admitted"], taken["taken"]) == (True, {"runs": 3})
    refused = limited.run("acquire", "key-1", "jobs", "-t", "runs:1", "--json")
    assert refused.exit_code == 3
    told = json.loads(refused.stdout)
    assert told["admitted"] is False
    assert told["retry_after_seconds"] == pytest.approx(28_800, abs=60)


def test_waiting_gets_tokens_that_come_in_time(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "jobs", "-l", "runs:2/sec")
    for _ in range(4):
        zael.out("acquire", "key-1", "jobs", "-t", "runs:1", "--wait", "30")


@pytest.mark.parametrize(
    "amount", ["runs", "runs:", ":1", "runs:-1", "runs:1.5", "runs:x", "runs:" + "9" * 5000]
)
def test_an_amount_that_is_none_is_wrong_use(limited: Zael, amount: str) -> None:
    assert "is not name:amount" in limited.error("acquire", "key-1", "jobs", "-t", amount, code=2)
    assert left(limited) == {"runs": 3, "cpu": 100}


def test_an_amount_or_a_time_that_the_limiter_refuses_is_called_by_its_option(
    limited: Zael,
) -> None:
    taking = ("acquire", "key-1", "jobs", "-t")
    assert "Invalid --take: no limit named 'rps'" in limited.error(*taking, "rps:1")
    assert "Invalid --wait: must be" in limited.error(*taking, "runs:1", "--wait", "nan")
    assert left(limited) == {"runs": 3, "cpu": 100}


def test_a_limit_named_twice_is_wrong_use(limited: Zael) -> None:
    arguments = ("acquire", "key-1", "jobs", "-t", "runs:1", "-t", "runs:1")
    assert "named twice" in limited.error(*arguments, code=2)


def test_available_says_when_amounts_fit(limited: Zael) -> None:
    assert "1 runs: now" in limited.out("available", "key-1", "jobs", "-t", "runs:1")
    limited.out("acquire", "key-1", "jobs", "-t", "runs:3")
    assert "1 runs: in 28," in limited.out("available", "key-1", "jobs", "-t", "runs:1")
    assert "9 runs: never" in limited.out("available", "key-1", "jobs", "-t", "runs:9")


def under_lease(zael: Zael, *command: str) -> subprocess.Popen[str]:
    arguments = [PYTHON, "-m", "zae_limiter.cli", "run", "key-1", "jobs", "-t", "runs:1", "--"]
    return subprocess.Popen(
        [*hearing_interrupts(), *arguments, *command],
        env={**os.environ, "ZAEL_URL": zael.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_command_that_succeeds_keeps_its_tokens(limited: Zael) -> None:
    program = under_lease(limited, PYTHON, "-c", "print('done')")
    assert program.communicate(timeout=60) == ("done\n", "")
    assert program.returncode == 0
    assert left(limited)["runs"] == 2


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ([PYTHON, "-c", "raise SystemExit(7)"], 7),
        ([PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"], 137),
        (["no-such-command"], 127),
        (["/"], 126),
    ],
)
def test_a_command_that_fails_gets_its_tokens_back(
    limited: Zael, command: list[str], code: int
) -> None:
    program = under_lease(limited, *command)
    program.communicate(timeout=60)
    assert program.returncode == code
    assert left(limited)["runs"] == 3


def test_a_command_without_two_dashes_before_it_is_wrong_use(limited: Zael) -> None:
    """Its options could be taken for options of `run`: -n names a stack."""
    arguments = ("run", "key-1", "jobs", "-t", "runs:1", "head", "-n", "1")
    assert "Write -- before the command" in limited.error(*arguments, code=2)
    assert left(limited)["runs"] == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_gets_its_tokens_back(
    limited: Zael, tmp_path: Path, number: signal.Signals
) -> None:
    started = tmp_path / "started"
    program = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(60)\n"
    running = under_lease(limited, PYTHON, "-c", program, str(started))
    while not started.exists():
        assert running.poll() is None
        time.sleep(0.02)
    assert left(limited)["runs"] == 2
    if number is signal.SIGINT:
        os.killpg(running.pid, number)  # as a terminal does
    else:
        running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert left(limited)["runs"] == 3


def test_a_store_that_cannot_answer_has_an_exit_code_of_its_own(
    limited: Zael, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    arguments = ("--name", "stack", "--region", "us-east-1", "--endpoint-url", "http://127.0.0.1:9")
    limited.url = ""
    assert limited.error("bucket", "show", "key-1", "jobs", *arguments, code=4)


def test_a_full_disk_is_told_in_one_line(limited: Zael) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PYTHON, "-m", "zae_limiter.cli", "resource", "list"],
            env={**os.environ, "ZAEL_URL": limited.url},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["entity", "-h"]])
def test_help_for_a_full_disk_is_told_in_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PYTHON, "-m", "zae_limiter", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (1, "Error: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(limited: Zael, closed: str) -> None:
    command = f"{PYTHON} -m zae_limiter entity list {closed}"
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "ZAEL_URL": limited.url},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_while_the_commands_are_imported_ends_with_130() -> None:
    program = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "zae_limiter.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from zae_limiter.__main__ import run_typed_command
run_typed_command()
"""
    done = subprocess.run(
        [*hearing_interrupts(), PYTHON, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "Error: interrupted\n")


def test_an_interrupt_at_a_prompt_ends_with_130(limited: Zael) -> None:
    master, slave = os.openpty()
    arguments = ["resource", "delete-defaults", "jobs"]
    program = subprocess.Popen(
        [*hearing_interrupts(), PYTHON, "-m", "zae_limiter.cli", *arguments],
        env={**os.environ, "ZAEL_URL": limited.url},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(master, 1024)
    # One that comes right before the prompt begins to read is heard with the next key only.
    for _ in range(120):
        program.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            program.wait(timeout=0.5)
            break
    assert program.returncode == 130
    os.close(master)
    assert limited.json("resource", "list")
