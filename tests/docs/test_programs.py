"""The programs of the README and of examples/ run as files, as a reader would run them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from tests.docs.test_examples import README, ROOT, blocks
from tests.support.servers.processes import free_port
from tests.support.web_servers import environment, served

EXAMPLES = ROOT / "examples"
PROGRAMS = [source for _, source in blocks(README)]
_ADMITTED = re.compile(r"^call \d: admitted$", re.M)


def started(file: Path, folder: Path, python: str | Path = sys.executable) -> subprocess.Popen[str]:
    command = [str(python), "-W", "error", str(file)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=pipe, stderr=pipe, text=True
    )


def output_of(program: subprocess.Popen[str]) -> str:
    output, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (0, ""), errors
    return output


def test_the_readme_has_a_program_for_each_driver() -> None:
    assert ["asyncio.run" in source for source in PROGRAMS] == [True, False]


def test_the_first_program_of_the_readme_admits_its_limit_and_refuses_the_rest(
    tmp_path: Path,
) -> None:
    file = tmp_path / "quickstart.py"
    file.write_text(PROGRAMS[0], encoding="utf-8")
    first, second = (output_of(started(file, tmp_path)) for _ in range(2))
    assert len(_ADMITTED.findall(first)) == 5
    assert first.count("refused, retry after") == 2
    assert "refused, retry after" in second


def test_four_workers_may_start_with_the_first_program_at_once(tmp_path: Path) -> None:
    file = tmp_path / "quickstart.py"
    file.write_text(PROGRAMS[0], encoding="utf-8")
    outputs = [output_of(program) for program in [started(file, tmp_path) for _ in range(4)]]
    admitted = sum(len(_ADMITTED.findall(output)) for output in outputs)
    # Five, and one more for each twelve seconds that a slow machine may take.
    assert 5 <= admitted <= 8


def test_the_blocking_program_of_the_readme_refuses_the_third_call(tmp_path: Path) -> None:
    file = tmp_path / "blocking.py"
    file.write_text(PROGRAMS[1], encoding="utf-8")
    for _ in range(2):
        lines = output_of(started(file, tmp_path)).splitlines()
        assert len(lines) == 4
        assert any("refused, retry after" in line for line in lines)


def test_the_script_waits_for_its_turn(tmp_path: Path) -> None:
    lines = output_of(started(EXAMPLES / "script.py", tmp_path)).splitlines()
    assert [line.split(" sent")[0] for line in lines] == [f"message {n}" for n in range(1, 6)]


def test_the_workers_take_what_is_allowed(tmp_path: Path) -> None:
    for _ in range(2):
        output = output_of(started(EXAMPLES / "workers.py", tmp_path))
        assert output == "25 of 40 jobs admitted, 25 allowed\n"


def test_the_cells_of_the_notebook_run_one_after_the_other() -> None:
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]

    async def run() -> dict[str, object]:
        scope: dict[str, object] = {"__name__": "__main__"}
        for cell in cells:
            code = compile(cell, "notebook", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, scope)
            if inspect.iscoroutine(result):
                await result
        return scope

    outcomes = asyncio.run(run())["outcomes"]
    assert isinstance(outcomes, list)
    assert [outcome.split(",")[0] for outcome in outcomes] == ["admitted"] * 3 + ["refused"] * 2


def answer(port: int) -> HTTPResponse:
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/complete?prompt=hello", headers={"x-api-key": "key-1"})
        response = connection.getresponse()
        response.read()
        return response


@pytest.mark.parametrize(
    "command",
    [
        ["uvicorn", "fastapi_app:app", "--port", "PORT", "--workers", "2"],
        ["flask", "--app", "flask_app", "run", "--port", "PORT"],
        ["django_app", "runserver", "--noreload", "PORT"],
    ],
    ids=["fastapi", "flask", "django"],
)
def test_the_web_applications_answer_429_with_retry_after(
    command: list[str], tmp_path: Path
) -> None:
    for file in EXAMPLES.glob("*_app.py"):
        shutil.copy(file, tmp_path)
    port = free_port()
    with served([str(port) if part == "PORT" else part for part in command], port, tmp_path):
        answers = [answer(port) for _ in range(8)]
    assert [a.status for a in answers[:5]] == [200] * 5
    refused = [a for a in answers if a.status == 429]
    assert refused
    assert all(int(a.headers["Retry-After"]) >= 1 for a in refused)


def commands_of_readme() -> tuple[list[str], list[str]]:
    """Return the commands under "Install it": those of its block, and those in its text."""
    part = README.read_text(encoding="utf-8").split("## Install it")[1].split("\n## ")[0]
    block, text = part.split("```console\n")[1].split("```")[0], part.split("```\n")[-1]
    return re.findall(r"^\$ (.*)", block, re.M), re.findall(r"`(python -m pip [^`]+)`", text)


def test_the_readme_tells_how_to_install_from_the_source_and_from_a_wheel() -> None:
    (clone, activate, install), (build, install_wheel) = commands_of_readme()
    assert clone == "git clone <this repository>"
    assert "venv" in activate
    assert install.endswith("install ./zae-limiter")
    assert "wheel" in build
    assert install_wheel.endswith(".whl")


@pytest.mark.slow
def test_a_newcomer_gets_from_the_readme_to_a_limit_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    clone = tmp_path / "zae-limiter"
    shutil.copytree(ROOT / "src", clone / "src")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    (_, activate, install), wheel = commands_of_readme()
    (tmp_path / "quickstart.py").write_text(PROGRAMS[0], encoding="utf-8")
    first = [activate, *wheel, "python -W error quickstart.py"]
    output = shell(tmp_path, *first)
    assert len(_ADMITTED.findall(output)) == 5
    assert output.count("refused, retry after") == 2
    assert "zae-limiter" in shell(tmp_path, activate, install, "zae-limiter --version")


def shell(folder: Path, *commands: str) -> str:
    """Run commands in one shell, and return what they print; each must succeed."""
    python = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", "\n".join(commands)],
        cwd=folder,
        env={**environment(), **python},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
