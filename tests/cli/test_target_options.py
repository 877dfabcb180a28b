"""The options of a command that choose its store."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from tests.support.cli_runner import Zael
from zae_limiter.cli import cli

# Nothing listens there, so the error names the table and the place that were meant.
NOWHERE = "http://127.0.0.1:9"


def listing(*options: str, **environment: str | None) -> Result:
    names = ("ZAEL_URL", "ZAEL_STACK", "ZAEL_NAMESPACE")
    keys = {"AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY": "test"}
    known = {**dict.fromkeys(names), **keys, **environment}
    return CliRunner().invoke(cli, ["resource", "list", *options], env=known)


@pytest.mark.parametrize(
    ("options", "environment", "table"),
    [
        (("--name", "typed"), {}, "typed"),
        (("-n", "typed"), {"ZAEL_URL": "sqlite:///limits.db"}, "typed"),
        (("-n", "typed"), {"ZAEL_STACK": "from-env"}, "typed"),
        ((), {"ZAEL_STACK": "from-env"}, "from-env"),
    ],
)
def test_a_command_works_on_the_table_of_a_stack(
    options: tuple[str, ...], environment: dict[str, str], table: str
) -> None:
    place = ("--region", "eu-west-1", "--endpoint-url", NOWHERE)
    result = listing(*options, *place, **environment)
    assert result.exit_code == 4
    assert f"Cannot open table '{table}' at 127.0.0.1:9 (region eu-west-1)" in result.stderr


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (("--url", "sqlite:///none.db"), {"ZAEL_STACK": "from-env"}),
        ((), {"ZAEL_URL": "sqlite:///none.db", "ZAEL_STACK": "from-env"}),
    ],
)
def test_a_url_counts_for_more_than_the_stack_of_the_environment(
    options: tuple[str, ...], environment: dict[str, str]
) -> None:
    result = listing(*options, **environment)
    assert result.exit_code == 1
    assert "none.db" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--name", "x"), "--url and --name both name a store"),
        (("--region", "eu-west-1"), "--region goes with --name"),
        (("--endpoint-url", NOWHERE), "--endpoint-url goes with --name"),
    ],
)
def test_a_url_and_the_place_of_a_stack_are_a_usage_error(
    options: tuple[str, ...], message: str
) -> None:
    result = listing("--url", "sqlite:///limits.db", *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_bad_part_of_a_url_is_not_called_by_an_option_that_was_not_typed() -> None:
    result = listing("--url", "dynamodb://us-east-1/x")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Invalid stack: must have 3 to 55 characters")


def test_a_command_without_a_store_says_how_to_name_one() -> None:
    result = listing()
    assert result.exit_code == 2
    for way in ("--url", "ZAEL_URL", "--name", "ZAEL_STACK"):
        assert way in result.stderr


def test_the_store_may_be_named_before_the_command(zael: Zael) -> None:
    url, zael.url = zael.url, ""
    zael.out("--url", url, "resource", "set-defaults", "gpt-4", "-l", "rpm:3")
    assert zael.out(f"--url={url}", "resource", "list") == "gpt-4\n"
    zael.out("-N", "tenant-a", "--url", url, "entity", "create", "key-1")
    assert zael.json("--url", url, "entity", "show", "key-1", "-N", "tenant-a")["id"] == "key-1"


def test_the_store_may_be_named_between_a_group_and_its_command(zael: Zael) -> None:
    url, zael.url = zael.url, ""
    zael.out("resource", "--url", url, "set-defaults", "gpt-4", "-l", "rpm:3")
    assert zael.out("-N", "default", "resource", f"--url={url}", "list") == "gpt-4\n"


def test_an_option_after_the_command_counts_for_more_than_one_before(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:3")
    assert zael.out("--url", "sqlite:////none/x.db", "resource", "list", "--url", zael.url)


def test_a_store_before_an_unknown_command_hides_no_mistake(zael: Zael) -> None:
    assert "No such command 'nothing'" in zael.error("--url", "x", "nothing", code=2)


def test_arguments_of_a_program_are_not_taken_for_options(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "jobs", "-l", "runs:3")
    run = ("run", "key-1", "jobs", "-t", "runs:1", "--", "echo", "--url", "x")
    assert zael.run("--url", zael.url, *run).exit_code == 0
