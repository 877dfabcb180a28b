"""Tables of the guide, and where they stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "scale.md"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are figures."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(words)} |" for words in (headings, rule, *rows))


def section(text: str, name: str) -> str:
    """What stands between the marks of a name."""
    return text.partition(_begin(name))[2].partition(_end(name))[0].strip()


def with_section(text: str, name: str, content: str) -> str:
    """The text with something else between the marks of a name."""
    before, begin, rest = text.partition(_begin(name))
    _, end, after = rest.partition(_end(name))
    if not (begin and end):
        raise LookupError(f"the guide has no place for {name}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def _begin(name: str) -> str:
    return f"<!-- {name} -->"


def _end(name: str) -> str:
    return f"<!-- end of {name} -->"
