"""Every Python example in the guides is run, in order, page by page."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_server import model_server

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Each example with the line it starts on."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        yield text[: match.start(1)].count("\n"), match.group(1)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


async def run_page(page: Path) -> None:
    scope: dict[str, object] = {"__name__": "example"}
    for line, source in blocks(page):
        code = compile(
            "\n" * line + source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        result = eval(code, scope)
        if inspect.iscoroutine(result):
            await result


WITH_EXAMPLES = [page for page in PAGES if any(blocks(page))]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """Where a model provider listens."""
    with model_server() as server:
        yield server.url


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
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
    assert len(WITH_EXAMPLES) >= 4
