"""The guide to troubleshooting explains every message and every exception that users can meet."""

from __future__ import annotations

import inspect

import pytest

from tests.docs.message_families import families
from tests.docs.test_examples import ROOT
from zae_limiter.core import exceptions
from zae_limiter.core.rate_limit_exceeded import RateLimitExceeded

PAGE = ROOT / "docs" / "troubleshooting.md"
TEXT = " ".join(PAGE.read_text(encoding="utf-8").replace("`", "").split())
EXCEPTIONS = [
    name
    for name, value in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(value, Exception)
]
# Bases that only group others; programs catch them, and nothing raises them.
GROUPS = {"EntityError", "InfrastructureError", "RateLimitError", "VersionError", "ValidationError"}


@pytest.mark.parametrize("name", [*EXCEPTIONS, RateLimitExceeded.__name__])
def test_the_guide_names_every_exception(name: str) -> None:
    assert name in TEXT or name in GROUPS, f"explain {name} in docs/troubleshooting.md"


def test_the_guide_explains_every_message() -> None:
    missing = {text: place for text, place in families().items() if text not in TEXT}
    assert not missing, "explain these messages in docs/troubleshooting.md"


@pytest.mark.parametrize(
    "message",
    [
        "is locked by another process",
        "DynamoDB does not answer, and was not asked again",
        "was never ended: call commit() or release()",
        "it was deleted, or its store was; open the repository again",
        "There is no table",
        "the oldest that the table lets in: upgrade the client",
        "already exists",
        "wants no calls for",
        "Refund failed, the tokens stay charged",
    ],
)
def test_messages_are_found_wherever_they_are_made(message: str) -> None:
    assert message in families()
