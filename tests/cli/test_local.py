"""A server in the background, from the first start to the end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from zae_limiter import InfrastructureError
from zae_limiter.cli.local_aws.environment import child_environment, variable_lines
from zae_limiter.cli.local_aws.process import LocalPort, LocalServer
from zae_limiter.cli.local_aws.programs import PROGRAMS, LocalProgram

CACHE = Path(__file__).parents[2] / ".cache" / "local"


class LocalCli:
    """`zae-limiter` in processes of its own, for one port. Servers that were installed once are
    shared by all runs of the tests."""

    def __init__(self) -> None:
        self.port = free_port()
        leading = ("AWS_", "ZAEL_")
        kept = {name: v for name, v in os.environ.items() if not name.startswith(leading)}
        self.environment = {**kept, "ZAEL_CACHE": str(CACHE)}

    def local(self, command: str, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("local", command, "--port", str(self.port), *args, code=code)

    def run(
        self, *args: str, code: int = 0, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "zae_limiter.cli", *args],
            capture_output=True,
            text=True,
            env={**self.environment, **(variables or {})},
            check=False,
        )
        assert done.returncode == code, f"{args}: {done.stdout}{done.stderr}"
        return done

    def variables(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.local("env", "--json").stdout)
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cli() -> Iterator[LocalCli]:
    made = LocalCli()
    yield made
    made.local("down")


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--minimal",)], ids=["full", "minimal"])
def test_a_local_server_is_started_used_and_ended(options: tuple[str, ...], cli: LocalCli) -> None:
    up = ("up", *options, "--name", "my-app")
    told = json.loads(cli.local(*up, "--json").stdout)
    assert told["endpoint_url"] == f"http://127.0.0.1:{cli.port}"
    assert json.loads(cli.local(*up, "--json").stdout) == told
    assert json.loads(cli.local("status", "--json").stdout) == told
    variables = cli.variables()
    cli.run("resource", "set-defaults", "gpt-4", "-l", "rpm:10", variables=variables)
    shown = cli.run("resource", "get-defaults", "gpt-4", variables=variables).stdout
    assert "rpm: 10/min" in shown
    if not options:
        place = ("--region", "us-east-1", "--endpoint-url", told["endpoint_url"])
        assert "my-app" in cli.run("list", *place, variables=variables).stdout
    cli.local("logs", "--tail", "3")
    other = cli.local("up", *options, "--name", "other", code=1)
    assert "Another local server runs" in other.stderr
    assert "Ended" in cli.local("down").stdout
    assert "No local server runs" in cli.local("status", code=1).stderr
    assert "No local server runs" in cli.local("down").stdout
    assert not LocalServer("full", told["pid"], "", cli.port, "my-app").is_alive


@pytest.mark.slow
def test_a_server_without_its_stack_gets_it_when_the_command_is_run_again(cli: LocalCli) -> None:
    up = ("up", "--name", "my-app", "--json")
    started = json.loads(cli.local(*up).stdout)
    variables = cli.variables()
    cli.run("delete", "--name", "my-app", "--yes", variables=variables)
    assert json.loads(cli.local(*up).stdout) == started
    status = cli.run("status", "--name", "my-app", "--json", variables=variables)
    assert json.loads(status.stdout)["ready"]
    file = CACHE / f"local-{cli.port}.json"
    known = file.read_text(encoding="utf-8")
    file.write_text(known.replace('"full"', '"unknown"'), encoding="utf-8")
    assert "No local server runs" in cli.local("status", code=1).stderr
    file.write_text(known, encoding="utf-8")


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = LocalPort(tmp_path, taken.getsockname()[1])
        with pytest.raises(InfrastructureError, match="choose another with --port"):
            place.start("full", "my-app")


def test_a_server_that_ends_at_once_is_reported_with_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = LocalProgram(
        "a broken server",
        lambda cache: True,
        lambda cache: None,
        lambda cache, port: [sys.executable, "-c", "raise SystemExit('no room left')"],
        lambda port: {},
        "/",
    )
    monkeypatch.setitem(PROGRAMS, "full", broken)
    place = LocalPort(tmp_path, free_port())
    with pytest.raises(InfrastructureError, match=r"exit code 1\. It wrote: no room left"):
        place.start("full", "my-app")
    assert place.running() is None


def test_a_server_that_ends_while_another_program_answers_is_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = LocalProgram(
        "a server that comes too late",
        lambda cache: True,
        lambda cache: None,
        lambda cache, port: [sys.executable, "-c", "raise SystemExit('address in use')"],
        lambda port: {},
        "/",
    )
    monkeypatch.setitem(PROGRAMS, "full", late)
    place = LocalPort(tmp_path, free_port())

    def answer_after_its_end(port: int, path: str) -> bool:
        known = json.loads((tmp_path / f"local-{port}.json").read_text(encoding="utf-8"))
        os.waitid(os.P_PID, known["pid"], os.WEXITED | os.WNOWAIT)
        return True

    monkeypatch.setattr("zae_limiter.cli.local_aws.process._answers", answer_after_its_end)
    with pytest.raises(InfrastructureError, match="another program answers on its port"):
        place.start("full", "my-app")
    assert place.running() is None


@pytest.mark.slow
def test_commands_that_start_a_server_at_once_start_one(cli: LocalCli) -> None:
    command = [sys.executable, "-m", "zae_limiter.cli", "local", "up", "--minimal", "--json"]
    command += ["--name", "my-app", "--port", str(cli.port)]
    begun = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=cli.environment, text=True)
        for _ in range(3)
    ]
    told = [json.loads(process.communicate()[0]) for process in begun]
    assert {process.returncode for process in begun} == {0}
    assert told[0] == told[1] == told[2] == json.loads(cli.local("status", "--json").stdout)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--minimal",)], ids=["full", "minimal"])
def test_a_local_server_is_used_past_proxies_and_endpoints_of_the_environment(
    options: tuple[str, ...], cli: LocalCli
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    names = ("HTTP_PROXY", "http_proxy", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_LAMBDA")
    cli.environment |= dict.fromkeys(names, nowhere)
    cli.environment |= {"AWS_PROFILE": "none", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    cli.local("up", *options, "--name", "my-app")
    lines = cli.local("env").stdout
    shown = subprocess.run(
        ["sh", "-ec", f"{lines}\n{sys.executable} -m zae_limiter.cli check"],
        capture_output=True,
        text=True,
        env=cli.environment,
        check=False,
    )
    assert (shown.stdout, shown.stderr) == ("Result: COMPATIBLE\n", "")


def test_a_process_that_began_at_another_time_is_not_the_server(tmp_path: Path) -> None:
    """Its id was given to another process: this one, which must survive."""
    known = {"kind": "full", "pid": os.getpid(), "began": "1", "port": 1, "stack": "my-app"}
    (tmp_path / "local-1.json").write_text(json.dumps(known))
    place = LocalPort(tmp_path, 1)
    assert place.running() is None
    assert place.stop() is None
    assert not (tmp_path / "local-1.json").exists()


def test_children_get_made_up_credentials_for_the_endpoint_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "real")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://real")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")
    monkeypatch.setenv("NO_PROXY", "intra")
    child = child_environment(4566, "my-app")
    assert child["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4566"
    assert not {"AWS_PROFILE", "AWS_ENDPOINT_URL_S3"} & child.keys()
    assert child["NO_PROXY"] == "intra,127.0.0.1"
    assert "real" not in child.values()
    assert os.environ["AWS_ACCESS_KEY_ID"] == "real"


def test_variables_are_written_for_each_shell() -> None:
    variables = {"A": "1?x=2&y"}
    assert variable_lines(variables, "eval") == ["export A='1?x=2&y'"]
    assert variable_lines(variables, "direnv") == ["export A='1?x=2&y'"]
    assert variable_lines(variables, "powershell") == ['$env:A = "1?x=2&y"']
    assert variable_lines({}, "eval", ["B"]) == ["unset B"]
    assert variable_lines({}, "powershell", ["B"]) == [
        "Remove-Item Env:B -ErrorAction SilentlyContinue"
    ]
