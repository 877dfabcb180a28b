"""Commands about stacks check what was typed before they call AWS."""

from __future__ import annotations

import pytest

from tests.support.cli_runner import Zael


@pytest.mark.parametrize("command", ["deploy", "upgrade", "delete", "status"])
def test_a_wrong_name_on_the_command_line_is_an_error(command: str, zael: Zael) -> None:
    assert "Invalid" in zael.error(command, "--name", "no_underscore")


def test_commands_that_could_hit_the_wrong_stack_need_its_name(zael: Zael) -> None:
    for command in ("delete", "status"):
        assert "--name" in zael.error(command, code=2)
    assert "--wait" in zael.error("delete", "-n", "a-b", "--no-wait", "--archive", "delete", code=2)


def test_options_that_make_no_sense_are_refused_before_any_call(zael: Zael) -> None:
    assert "--create-iam-roles" in zael.error("deploy", "--no-iam", "--create-iam-roles")
    long = "s" * 55
    assert "64 characters" in zael.error(
        "deploy", "-n", long, "--role-name-format", "r" * 20 + "{}"
    )
