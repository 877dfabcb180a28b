"""Links of the guides lead somewhere, and the navigation of the site has every guide."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_examples import PAGES, ROOT, name_of

DOCS = ROOT / "docs"
OTHERS = [*ROOT.glob("*.md"), *ROOT.glob("examples/**/README.md")]
# Pages that the site has and docs/ has not: tests/docs/site_hooks.py makes them.
MADE = {
    "index.md",
    "changelog.md",
    "contributing.md",
    "examples/index.md",
    "examples/gateway/index.md",
    "adr/index.md",
}
_CODE = re.compile(r"^(```+).*?^\1$", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+?)\s*$", re.M)
_LIST_IN_TEXT = re.compile(r"^(?!\s*([-*|>#<]|\d+\.)|\s*$)\S.*\n([-*]|\d+\.) \S", re.M)


# mkdocs.yml names a function of mkdocs, which need not be installed here.
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("!!python/", ""))


@cache
def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return _CODE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The file and the anchor of each link that does not leave the project."""
    for target in _LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


def site_anchor(heading: str) -> str:
    """The anchor that mkdocs gives a heading."""
    text = unicodedata.normalize("NFKD", _plain(heading)).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def repository_anchor(heading: str) -> str:
    """The anchor that code hosts give a heading."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", _plain(heading)).strip().lower())


def _plain(heading: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")


def anchors(page: Path) -> set[str]:
    """Anchors that mean one heading, and that the site and code hosts spell alike."""
    headings = _HEADING.findall(prose(page))
    counts = Counter(map(site_anchor, headings))
    return {
        anchor
        for heading in headings
        for anchor in [site_anchor(heading)]
        if counts[anchor] == 1 and anchor == repository_anchor(heading)
    }


def entries(nav: Any) -> Iterator[str]:
    """Every page of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from entries(each)


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    wrong = [
        f"{target.name}#{anchor}"
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert not wrong, f"{name_of(page)} links to {wrong}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_guides_stay_on_the_site(page: Path) -> None:
    outside = [target for target, _ in links(page) if not target.is_relative_to(DOCS)]
    names = ("examples", "examples/gateway", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
    shown = {ROOT / name for name in names}
    assert set(outside) <= shown, "tests/docs/site_hooks.py puts files on the site"


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name_of)
def test_lists_have_an_empty_line_before_them(page: Path) -> None:
    """Without it, the site shows the list as a line of text."""
    found = [match[0] for match in _LIST_IN_TEXT.finditer(prose(page))]
    assert not found


def test_the_navigation_has_every_guide_once() -> None:
    listed = Counter(entries(CONFIG["nav"]))
    written = {str(page.relative_to(DOCS)) for page in PAGES if page.parent.name != "adr"}
    assert set(listed) == written | MADE, "mkdocs.yml lists the pages under `nav`"
    assert set(listed.values()) == {1}


def test_the_navigation_has_four_parts_after_the_first_page() -> None:
    titles = [title for part in CONFIG["nav"] for title in part]
    assert titles == ["Home", "Tutorial", "How-to guides", "Concepts", "Reference"]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("What it costs", "what-it-costs"),
        ("`acquire` and [ADR 1](adr/001.md)", "acquire-and-adr-1"),
        ("AWS's limits", "awss-limits"),
    ],
)
def test_site_and_code_hosts_spell_an_anchor_alike(heading: str, anchor: str) -> None:
    assert site_anchor(heading) == repository_anchor(heading) == anchor
