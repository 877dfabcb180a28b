"""The guide for contributors names every folder of tests, and nothing that does not exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_examples import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FOLDERS = sorted(p.name for p in (ROOT / "tests").iterdir() if (p / "__init__.py").exists())
FIXTURES = re.findall(
    r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", TEXT.split("| fixture |")[1], re.M))
)
_PLUGINS = ("conftest.py", "support/servers/fixtures.py")
_SOURCE = "\n".join((ROOT / "tests" / name).read_text(encoding="utf-8") for name in _PLUGINS)


@pytest.mark.parametrize("name", FOLDERS)
def test_the_guide_for_contributors_names_every_folder_of_tests(name: str) -> None:
    assert f"`tests/{name}`" in TEXT


def test_folders_that_the_guide_for_contributors_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", TEXT)
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_that_the_guide_for_contributors_names_exist(name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", _SOURCE, re.M)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([a-z][a-z-]*)", TEXT))))
def test_targets_that_the_guide_for_contributors_names_exist(target: str) -> None:
    assert re.search(rf"^{target}:", MAKEFILE, re.M)
