"""Every Python example in the guides is run, in order, page by page.

Commands run, too, where their block says on which file: `export ZAEL_URL=sqlite:///limits.db`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_server import model_server

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.M | re.S)
_ON_A_FILE = "$ export ZAEL_URL=sqlite:///"


def blocks(page: Path, language: str = "python") -> Iterator[tuple[int, str]]:
    """Each example of a language with the line it starts on."""
    return ((line, source) for found, line, source in examples(page) if found == language)


def examples(page: Path) -> Iterator[tuple[str, int, str]]:
    """The language, the line and the source of each example that can be run."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        if match[1] == "python" or _ON_A_FILE in match[2]:
            yield match[1], text[: match.start(2)].count("\n"), match[2]


def run_commands(source: str) -> None:
    """Run the lines of a shell session that follow a prompt; each must succeed."""
    script = "\n".join(re.findall(r"^\$ (.*)", source, re.M))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


async def run_page(page: Path) -> None:
    scope: dict[str, object] = {"__name__": "example"}
    for language, line, source in examples(page):
        if language == "console":
            run_commands(source)
            continue
        code = compile(
            "\n" * line + source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        result = eval(code, scope)
        if inspect.iscoroutine(result):
            await result


WITH_EXAMPLES = [page for page in PAGES if any(examples(page))]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """Where a model provider listens."""
    with model_server() as server:
        yield server.url


# Each command of a page is a process of its own.
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if any(blocks(page, "console")) else [])
        for page in WITH_EXAMPLES
    ],
    ids=[name_of(page) for page in WITH_EXAMPLES],
)
def test_examples_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    provider: str,
) -> None:
    for name, path in (("OPENAI", "/v1"), ("ANTHROPIC", "")):
        monkeypatch.setenv(f"{name}_BASE_URL", provider + path)
        monkeypatch.setenv(f"{name}_API_KEY", "key")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZAEL_URL", raising=False)
    asyncio.run(run_page(page))


def test_there_are_examples() -> None:
    assert len(WITH_EXAMPLES) >= 15
    assert sum(any(blocks(page, "console")) for page in PAGES) >= 4
