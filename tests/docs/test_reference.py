"""What users can call, set or catch is mentioned in the documentation."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import zae_limiter
from zae_limiter import integrations
from zae_limiter.cli import cli
from zae_limiter.core import exceptions
from zae_limiter.opening import DEFAULT_OPTIONS

from . import api_reference, aws_policies, cli_reference

DOCS = Path(__file__).parent.parent.parent / "docs"
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md")))


def test_the_command_line_page_is_up_to_date() -> None:
    written = cli_reference.PAGE.read_text(encoding="utf-8")
    assert written == cli_reference.render(), "run python -m tests.docs.cli_reference"


def test_the_reference_page_is_up_to_date() -> None:
    written = api_reference.PAGE.read_text(encoding="utf-8")
    assert written == api_reference.render(), "run python -m tests.docs.api_reference"


@pytest.mark.parametrize("path", [path for path, _ in cli_reference.commands(cli, "zae-limiter")])
def test_short_and_long_option_show_the_help_of_each_command(path: str) -> None:
    words = path.split()[1:]
    shown = [CliRunner().invoke(cli, [*words, option]) for option in ("-h", "--help")]
    assert [result.exit_code for result in shown] == [0, 0]
    assert shown[0].output == shown[1].output
    assert "Usage: " in shown[0].output


def test_the_reference_explains_every_option_of_opening() -> None:
    page = api_reference.PAGE.read_text(encoding="utf-8")
    for name in DEFAULT_OPTIONS:
        assert re.search(rf"^\| `{name}` \|.*\| [A-Z`].+\. \|$", page, re.M), name


@pytest.mark.parametrize("name", zae_limiter.__all__)
def test_the_reference_has_every_field_of_a_record(name: str) -> None:
    kind = getattr(zae_limiter, name)
    page = api_reference.PAGE.read_text(encoding="utf-8")
    part = page.split(f"### `{name}`\n")[-1].split("\n### ")[0]
    for each in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        assert each.name.startswith("_") or f"- field `{each.name}:" in part


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
