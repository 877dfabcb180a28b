"""Conventions hold for every command."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator

from tests.support.cli_runner import Zael
from tests.support.cli_schema import SCHEMA, schema
from zae_limiter import __version__
from zae_limiter.cli import cli

MANIFEST = str(Path(__file__).parent.parent.parent / "examples" / "limits.yaml")
# Commands that make a store and a namespace where there are none.
MAKING = [
    ("config set", "--level", "system", "--on-unavailable", "allow"),
    ("entity create", "key-1"),
    ("entity set-limits", "key-1", "-l", "rpm:10"),
    ("limits apply", MANIFEST),
    ("namespace register", "tenant-a"),
    ("resource set-defaults", "gpt-4", "-l", "rpm:10"),
    ("system set-defaults", "-l", "rpm:10"),
]
# Commands about what must be there.
EXISTING = [
    ("acquire", "key-1", "gpt-4", "-t", "rpm:1"),
    ("audit list", "-e", "key-1"),
    ("available", "key-1", "gpt-4"),
    ("bucket list", "-r", "gpt-4"),
    ("bucket show", "key-1", "gpt-4"),
    ("bucket top", "-r", "gpt-4"),
    ("config get", "--level", "system"),
    ("entity children", "acme"),
    ("entity delete", "key-1", "--yes"),
    ("entity delete-limits", "key-1", "--yes"),
    ("entity get-limits", "key-1"),
    ("entity list",),
    ("entity list-resources",),
    ("entity show", "key-1"),
    ("entity update", "key-1", "--display-name", "One"),
    ("limits diff", MANIFEST),
    ("limits export",),
    ("limits plan", MANIFEST),
    ("limits simulate", MANIFEST),
    ("resource delete-defaults", "gpt-4", "--yes"),
    ("resource get-defaults", "gpt-4"),
    ("resource list",),
    ("run", "key-1", "gpt-4", "-t", "rpm:1", "--", "true"),
    ("system delete-defaults", "--yes"),
    ("system get-defaults",),
    ("usage list", "-e", "key-1"),
    ("usage plot", "-e", "key-1"),
    ("usage summary", "-e", "key-1"),
    ("usage top", "-r", "gpt-4"),
]
REGISTRY = [
    ("check",),
    ("migrate", "--yes"),
    ("namespace delete", "tenant-a", "--yes"),
    ("namespace list",),
    ("namespace orphans",),
    ("namespace purge", "some-id", "--yes"),
    ("namespace recover", "some-id"),
    ("namespace show", "tenant-a"),
    ("version",),
]
# A command that reports a store which is not there as a finding.
REPORTING = ["doctor"]
# Commands about stacks, and commands that are about no store.
STACKS = ["delete", "deploy", "list", "status", "upgrade"]
LOCAL = ["local down", "local env", "local logs", "local status", "local up"]
STORELESS = ["cfn-template", "completion", "demo", "iam-policy", "lambda-export", *LOCAL]
STORELESS += ["limits cfn-template", "limits schema", "limits validate"]
# Commands whose output is another program's, a JSON document in any case, or none.
WITHOUT_JSON = {"completion", "limits schema", "local down", "local logs", "run"}


def leaves(group: click.Group = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        full = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from leaves(command, full)
        else:
            yield full, command


COMMANDS = dict(leaves())
ABOUT_NAMESPACES = {"namespace register", *(call[0] for call in REGISTRY)}


def argv(call: tuple[str, ...]) -> list[str]:
    return [*call[0].split(), *call[1:]]


def test_every_command_is_known_to_these_tests() -> None:
    classified = [call[0] for call in (*MAKING, *EXISTING, *REGISTRY)]
    assert sorted([*classified, "aggregate", *REPORTING, *STACKS, *STORELESS]) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_description_and_an_example_that_fit_a_terminal(name: str, zael: Zael) -> None:
    text = zael.out(*name.split(), "--help")
    assert f"zae-limiter {name}" in text.partition("Example:")[2]
    assert all(len(line) <= 80 for line in text.splitlines()), text
    description = text.split("\n\n")[1].strip()
    assert description.endswith((".", "`"))
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} does not say what {option.name} is"


def test_the_list_of_commands_is_not_cut_off(zael: Zael) -> None:
    assert "..." not in zael.out("--help").replace("[ARGS]...", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_with_output_of_its_own_has_a_json_option(name: str) -> None:
    options = {text for param in COMMANDS[name].params for text in param.opts}
    assert ("--json" in options) != (name in WITHOUT_JSON)


def test_the_schema_has_every_command_that_prints_json_and_no_other() -> None:
    Draft202012Validator.check_schema(schema())
    published = set(schema()["$defs"])
    commands = {name.replace(" ", "-") for name in COMMANDS if name not in WITHOUT_JSON}
    assert commands <= published
    referred = set(re.findall(r'"#/\$defs/([a-z-]+)"', SCHEMA.read_text(encoding="utf-8")))
    assert published - commands <= referred


@pytest.mark.parametrize("call", MAKING, ids=lambda call: call[0])
def test_commands_that_store_something_create_the_store(call: tuple[str, ...], zael: Zael) -> None:
    assert zael.out(*argv(call))
    assert zael.path.exists()


@pytest.mark.parametrize("call", [*EXISTING, *REGISTRY], ids=lambda call: call[0])
def test_a_mistyped_file_is_an_error_and_makes_nothing(call: tuple[str, ...], zael: Zael) -> None:
    message = zael.error(*argv(call))
    assert message.startswith("Error: No limiter found at")
    assert "Hint: " in message
    assert not list(zael.path.parent.iterdir())


@pytest.mark.parametrize("call", EXISTING, ids=lambda call: call[0])
def test_a_mistyped_namespace_is_an_error_and_makes_nothing(
    call: tuple[str, ...], zael: Zael
) -> None:
    zael.out("namespace", "register", "tenant-a")
    message = zael.error("-N", "tenant-b", *argv(call))
    assert message.startswith("Error: Namespace 'tenant-b' is not registered\nHint: ")
    assert [each["name"] for each in zael.json("namespace", "list")] == ["tenant-a"]


@pytest.mark.parametrize("call", [*MAKING, *EXISTING, *REGISTRY], ids=lambda call: call[0])
def test_a_store_in_memory_is_refused(call: tuple[str, ...], zael: Zael) -> None:
    assert "memory:// lives and ends with one process" in zael.error(
        "--url", "memory://", *argv(call)
    )


@pytest.mark.parametrize("url", ["memory://", "sqlite:///limits.db"])
def test_stores_that_count_usage_themselves_have_nothing_to_aggregate(url: str, zael: Zael) -> None:
    assert "counts usage itself" in zael.error("aggregate", "--url", url)


def test_an_invalid_url_is_refused(zael: Zael) -> None:
    assert "sqlite:///limits.db" in zael.error("resource", "list", "--url", "limits.db")


def test_a_command_without_a_url_is_a_usage_error(zael: Zael) -> None:
    zael.url = ""
    message = zael.error("resource", "list", code=2)
    assert "--url" in message
    assert "ZAEL_URL" in message


def test_a_file_in_no_directory_is_an_error_that_says_what_to_make(zael: Zael) -> None:
    folder = zael.path.parent / "none"
    message = zael.error("entity", "create", "key-1", "--url", f"sqlite:///{folder}/limits.db")
    assert message.startswith(
        f"Error: No limiter found at '{folder}/limits.db': there is no directory {folder}: make it"
    )
    assert not folder.exists()


def test_a_file_that_is_no_store_is_refused_and_left_alone(zael: Zael) -> None:
    zael.path.write_text("notes")
    assert "is not a zae-limiter store" in zael.error("entity", "create", "key-1")
    assert zael.path.read_text() == "notes"


def test_invalid_names_are_an_error_without_a_traceback(zael: Zael) -> None:
    assert "Invalid entity_id" in zael.error("entity", "create", "no#hash")
    assert "Invalid --namespace" in zael.error("entity", "create", "key-1", "-N", "_")


def test_the_version_option_prints_the_version(zael: Zael) -> None:
    assert zael.out("--version").strip() == __version__


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has imported after this statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def test_importing_the_package_does_not_import_the_command_line() -> None:
    assert not {"click", "rich"} & modules_after("import zae_limiter")


def test_help_is_printed_without_importing_rich_or_boto3() -> None:
    assert not {"boto3", "botocore", "rich"} & modules_after(
        "from zae_limiter.cli import cli\n"
        "for args in (['--help'], ['aggregate', '-h'], ['demo', '-h'], ['doctor', '-h']):\n"
        "    cli(args, standalone_mode=False)"
    )


def test_the_command_line_runs_as_a_script_and_as_a_module(tmp_path: Path) -> None:
    module = [sys.executable, "-m", "zae_limiter.cli"]
    script = [str(Path(sys.executable).parent / "zae-limiter")]
    for command in (module, script):
        done = subprocess.run(
            [*command, "resource", "list", "--url", f"sqlite:///{tmp_path}/none.db"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert done.stderr.startswith("Error: No limiter found")
        assert not done.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {*STACKS, *STORELESS}))
def test_every_command_about_a_store_takes_a_url_or_a_stack(name: str) -> None:
    options = {text for param in COMMANDS[name].params for text in param.opts}
    assert {"--url", "--name", "-n", "--region", "--endpoint-url"} <= options
    assert ("--namespace" in options) is (name != "aggregate" and name not in ABOUT_NAMESPACES)
