"""Hooks that mkdocs calls while it builds the site: they bring what lies outside `docs/` onto it.

The README is the first page, the programs of `examples/` are one page, the decisions have an
index, and the script that draws diagrams is served by the site itself.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tests.support.servers.install import mermaid

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))
# Files of the repository that are pages of the site, and where.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples/index.md",
    "examples/gateway/README.md": "examples/gateway/index.md",
}
_LINK = re.compile(r"(\]\()([^)\s#:]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List every decision in the navigation, below the index of decisions."""
    entries = _section(_section(config.nav or [], "Concepts"), "Decisions")
    entries.extend({_title(page): f"adr/{page.name}"} for page in DECISIONS)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and the script that draws diagrams."""
    made = {uri: _on_the_site(name) for name, uri in PAGES.items()}
    made["index.md"] = "---\nhide: [navigation]\n---\n" + made["index.md"]
    for name, uri in PAGES.items():
        if name.startswith("examples/"):
            made[uri] += _programs((ROOT / name).parent)
    made["adr/index.md"] = _index_of_decisions()
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    script = File.generated(config, "assets/mermaid.min.js", abs_src_path=str(mermaid()))
    files.append(script)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links of guides to files outside `docs/` lead to their pages on the site."""
    if not page.file.src_uri.startswith("adr/"):
        for name, uri in PAGES.items():
            path = re.escape(name).replace("/README\\.md", "/(README\\.md)?")
            markdown = re.sub(rf"\]\(\.\./{path}(?=[)#])", f"]({uri}", markdown)
    return markdown


def _on_the_site(name: str) -> str:
    """Return a page of the repository with its links as they are on the site."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return _LINK.sub(lambda match: match[1] + _place(match[2], name), text)


def _place(target: str, name: str) -> str:
    """Return where a link of a page of the repository leads on the site."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if target.endswith("/"):
        path += "/README.md"
    if path.startswith("examples/") and path not in PAGES:
        return f"#{posixpath.basename(path).replace('.', '')}"
    uri = PAGES.get(path, path.removeprefix("docs/").replace("adr/README.md", "adr/index.md"))
    return posixpath.relpath(uri, posixpath.dirname(PAGES[name]) or ".")


def _programs(folder: Path) -> str:
    files = sorted(folder.glob("*.*"))
    return "".join(_program(path) for path in files if path.suffix != ".md")


def _program(path: Path) -> str:
    language = {".py": "python", ".yaml": "yaml"}.get(path.suffix, "json")
    return f"\n## {path.name}\n\n```{language}\n{path.read_text(encoding='utf-8')}```\n"


def _index_of_decisions() -> str:
    rows = "".join(f"- [{_title(page)}]({page.name})\n" for page in DECISIONS)
    return f"# Decisions\n\nEach page gives the reasons for one decision of the design.\n\n{rows}"


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")


def _section(entries: list[Any], title: str) -> list[Any]:
    (found,) = (each[title] for each in entries if title in each)
    assert isinstance(found, list)
    return found
