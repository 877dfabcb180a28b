"""This module wraps text between words, so that a terminal breaks no timestamp or name."""

from __future__ import annotations

import textwrap

_HANG = 2


def wrapped(text: str, width: int | None, hang: int = _HANG) -> list[str]:
    """Return a line of text as lines of at most `width` columns, the first as it is and the others
    indented by `hang`. A word that is longer than a line stays whole. None is any width."""
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(
        text,
        max(width, hang + 1),
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
