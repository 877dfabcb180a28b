"""A package index shows the README as the built wheel carries it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata

from tests.docs.test_examples import README, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_links_of_the_packaged_readme_work_without_the_repository() -> None:
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    shown = README.read_text(encoding="utf-8")
    for rule in hook["substitutions"]:
        shown = re.sub(rule["pattern"], rule["replacement"], shown)
    links = _LINK.findall(shown)
    assert [link for link in links if not link.startswith(("https://", "http://", "#"))] == []
    assert "Getting started" in shown
    assert any(link.startswith("docs/") for link in _LINK.findall(README.read_text("utf-8")))


def test_the_installed_package_carries_that_readme() -> None:
    told = metadata("zae-limiter")
    assert told["Description-Content-Type"] == "text/markdown"
    text = told["Description"]
    assert "Where to go next" in text
    assert "](docs/" not in text
    assert "folder `docs/` of the source archive" in text


def test_urls_of_the_metadata_are_absolute() -> None:
    for url in PROJECT["project"].get("urls", {}).values():
        assert url.startswith("https://")
