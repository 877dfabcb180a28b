"""What users can call, set or catch is mentioned in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import zae_limiter
from zae_limiter import integrations
from zae_limiter.core import exceptions

from . import api_reference, aws_policies, cli_reference

DOCS = Path(__file__).parent.parent.parent / "docs"
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md")))


def test_the_command_line_page_is_up_to_date() -> None:
    written = cli_reference.PAGE.read_text(encoding="utf-8")
    assert written == cli_reference.render(), "run python -m tests.docs.cli_reference"


def test_the_reference_page_is_up_to_date() -> None:
    written = api_reference.PAGE.read_text(encoding="utf-8")
    assert written == api_reference.render(), "run python -m tests.docs.api_reference"


@pytest.mark.parametrize("name", integrations.__all__)
def test_every_name_for_web_applications_is_in_a_guide(name: str) -> None:
    assert re.search(rf"\b{name}\b", TEXT), f"docs do not mention {name}"


@pytest.mark.parametrize("name", zae_limiter.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert f"`{name}" in TEXT, f"docs do not mention {name}"


def test_every_error_is_exported() -> None:
    raised = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert raised <= set(zae_limiter.__all__)


def test_the_policies_on_the_page_about_aws_are_those_of_the_code() -> None:
    written = aws_policies.PAGE.read_text(encoding="utf-8")
    assert written == aws_policies.render(written), "run python -m tests.docs.aws_policies"
    for name in aws_policies.documents():
        assert f"<!-- policy: {name} -->" in written, name
