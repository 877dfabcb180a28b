"""Every example in the help of a command is run by a shell, as a reader would type it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_conventions import COMMANDS
from tests.support.programs import hearing_interrupts
from tests.support.servers.processes import Server, free_port
from tests.support.web_servers import environment
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(sys.executable).parent
SOME_ID = "jT3kQx9aBcE"
# Commands of one table or stack build on each other, so they run in this order.
ON_A_TABLE = ["check", "version", "migrate", "aggregate"]
ON_A_STACK = ["deploy", "status", "list", "upgrade", "delete"]
ON_A_SERVER = ["local up", "local status", "local env", "local logs", "local down"]
# Commands that go on until they are interrupted.
ENDLESS = re.compile("zae-limiter aggregate|zae-limiter local logs .* --follow")
# Commands that create what must not be there.
ON_NOTHING = {"entity create", "limits apply"}
ALONE = sorted(COMMANDS.keys() - {*ON_A_TABLE, *ON_A_STACK, *ON_A_SERVER})

pytestmark = pytest.mark.slow


def example(name: str) -> list[str]:
    """Return the lines of a command's example."""
    lines = (COMMANDS[name].epilog or "").splitlines()
    assert lines[:2] == ["\b", "Example:"]
    return [line.strip() for line in lines[2:]]


class Shell:
    """A shell in a folder of its own, with `zae-limiter` on its path and nothing of the machine's
    settings."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        kept = {name: text for name, text in environment().items() if not name.startswith("AWS_")}
        path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
        self._variables = {**kept, "PATH": path, "HOME": str(folder), **variables}

    def run(self, *lines: str) -> None:
        """Run lines, each of which must succeed. Questions are answered with yes."""
        done = subprocess.run(
            ["sh", "-ec", "\n".join(lines)],
            cwd=self.folder,
            env=self._variables,
            input="y\n" * 10,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr

    def run_until_interrupted(self, line: str, exports: list[str]) -> None:
        """Run a line that has no end, and interrupt it when it has printed something."""
        started = subprocess.Popen(
            [*hearing_interrupts(), shutil.which("sh") or "", "-ec", "\n".join([*exports, line])],
            cwd=self.folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert started.stdout is not None
        assert started.stdout.readline()
        os.killpg(started.pid, signal.SIGINT)
        _, errors = started.communicate(timeout=60)
        assert "Traceback" not in errors

    def run_example(self, lines: list[str]) -> None:
        """Run the lines of an example, those without an end one by one."""
        exports = [line for line in lines if line.startswith("export ")]
        for line in lines:
            if ENDLESS.fullmatch(line):
                self.run_until_interrupted(line, exports)
            elif line not in exports:
                self.run(*exports, line)


def fill(url: str) -> str:
    """Store what the examples speak of, and return the id of a namespace that was deleted."""
    with SyncRepository.open(url=url) as repository:
        repository.create_entity("acme")
        repository.create_entity("key-1", parent_id="acme", cascade=True)
        limits = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]
        repository.set_resource_defaults("gpt-4", limits)
        repository.set_resource_defaults("jobs", [Limit.per_minute("runs", 10)])
        repository.set_limits("key-1", limits, "gpt-4")
        with SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 5}):
            pass
        ids = repository.register_namespaces(["tenant-a", "gone"])
        repository.delete_namespace("gone")
        return ids["gone"]


def test_every_example_calls_its_own_command() -> None:
    for name in COMMANDS:
        calls = [line for line in example(name) if not line.startswith("export ")]
        assert calls[0].startswith(f"zae-limiter {name}"), name


@pytest.mark.parametrize("name", ALONE)
def test_the_examples_of_a_command_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
    deleted = "" if name in ON_NOTHING else fill(f"sqlite:///{tmp_path}/limits.db")
    Shell(tmp_path).run_example([line.replace(SOME_ID, deleted) for line in example(name)])


def test_the_examples_of_commands_about_a_table_run(
    dynamodb: Server, caller: None, tmp_path: Path
) -> None:
    with SyncRepository.open(
        stack="my-stack", region=dynamodb.region, endpoint_url=dynamodb.url
    ) as repository:
        repository.create_table()
    shell = Shell(
        tmp_path,
        AWS_REGION=dynamodb.region,
        AWS_ENDPOINT_URL_DYNAMODB=dynamodb.url,
        AWS_ENDPOINT_URL_DYNAMODB_STREAMS=dynamodb.url,
        AWS_ACCESS_KEY_ID=dynamodb.access_key or "test",
        AWS_SECRET_ACCESS_KEY=dynamodb.secret_key or "test",
    )
    for name in ON_A_TABLE:
        shell.run_example(example(name))


def test_the_examples_of_commands_about_a_stack_run(ministack: Server, tmp_path: Path) -> None:
    shell = Shell(
        tmp_path,
        AWS_REGION=ministack.region,
        AWS_ENDPOINT_URL=ministack.url,
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
    )
    topic = f"arn:aws:sns:{ministack.region}:000000000000:alarms"
    for name in ON_A_STACK:
        shell.run_example([re.sub(r"\bARN\b", topic, line) for line in example(name)])


def test_the_examples_of_commands_about_a_local_server_run(tmp_path: Path) -> None:
    shell = Shell(tmp_path, ZAEL_CACHE=str(ROOT / ".cache" / "local"))
    ports = {program: free_port() for program in ("all", "minimal")}
    for name in ON_A_SERVER:
        for line in example(name):
            typed = line.replace("--port 8000", f"--port {ports['minimal']}")
            if "--port" not in typed:
                typed = re.sub(f"^zae-limiter {name}", rf"\g<0> --port {ports['all']}", typed)
            shell.run_example([typed])
    shell.run(f"zae-limiter local down --port {ports['minimal']}")
