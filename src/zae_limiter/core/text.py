"""Text of callers and stores, made fit to be shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape what cannot be printed, so that text cannot control a terminal or forge a log line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
