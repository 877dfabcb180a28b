"""The documentation's site is built strictly, and loads nothing from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.test_examples import PAGES, ROOT

SITE = ROOT / ".cache" / "site"
# Attributes with which a page loads something by itself; a link to click on is none of them.
_LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"?(https?:)?//")
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//")


@pytest.mark.slow
def test_the_site_is_built_strictly_and_loads_nothing_from_other_hosts() -> None:
    done = subprocess.run(
        ["make", "site", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # A quiet build would count no warnings, and so let every broken link pass.
    assert "Documentation built" in done.stderr
    assert_every_page_is_there()
    assert_nothing_is_loaded_from_elsewhere()
    assert_diagrams_are_drawn_by_a_script_of_the_site()


def assert_every_page_is_there() -> None:
    for page in PAGES:
        assert (SITE / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page
    assert "Where to go next" in (SITE / "index.html").read_text(encoding="utf-8")


def assert_nothing_is_loaded_from_elsewhere() -> None:
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > len(PAGES)
    loading = [page.name for page in pages if _LOADED.search(page.read_text(encoding="utf-8"))]
    assert not loading
    styles = sorted(SITE.rglob("*.css"))
    assert styles
    assert not [each.name for each in styles if _IN_STYLE.search(each.read_text(encoding="utf-8"))]


def assert_diagrams_are_drawn_by_a_script_of_the_site() -> None:
    page = (SITE / "how-it-works.html").read_text(encoding="utf-8")
    assert 'class="mermaid"' in page
    assert 'src="assets/mermaid.min.js"' in page
    assert (SITE / "assets" / "mermaid.min.js").stat().st_size > 1_000_000
