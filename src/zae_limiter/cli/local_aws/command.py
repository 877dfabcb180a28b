"""The commands that start, end, show and use the local server."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import click

from ...core.exceptions import InfrastructureError
from ...core.validation import validate_stack_name
from ...naming import DEFAULT_NAMESPACE, DEFAULT_STACK_NAME
from ..options import examples, json_option
from ..output import print_fields, print_json, print_lines
from ..patience import patience
from .environment import (
    FORMATS,
    LOCAL_REGION,
    Format,
    child_environment,
    local_endpoint,
    local_variables,
    misleading_names,
    variable_lines,
)
from .process import LocalPort, LocalServer, one_starter
from .programs import PROGRAMS, cache_folder

_DEFAULT_PORT = 4566
_FOLLOW_POLL_S = 0.3
_port_option = click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    default=_DEFAULT_PORT,
    show_default=True,
    help="The port of the server, which listens on this machine only.",
)


@click.group()
def local() -> None:
    """A local AWS, or a DynamoDB alone, without Docker."""


@local.command(epilog=examples("local up", "local up --minimal --port 8000", on_a_store=False))
@click.option("--minimal", is_flag=True, help="A DynamoDB alone, with the table of the stack.")
@click.option(
    "--name",
    "-n",
    "stack",
    default=DEFAULT_STACK_NAME,
    show_default=True,
    help="The stack to deploy into it.",
)
@_port_option
@json_option
def up(minimal: bool, stack: str, port: int, as_json: bool) -> None:
    """Start the server in the background, and deploy a stack into it.

    Servers are installed on first use, into a cache folder (ZAEL_CACHE). Data is kept in memory: it
    ends with the server. A server that runs already is kept, and gets the stack if it lacks it.
    """
    validate_stack_name(stack)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    kind = "minimal" if minimal else "full"
    with one_starter(cache):
        running = _started(LocalPort(cache, port), cache, kind, stack)
    if (running.kind, running.stack) != (kind, stack):
        raise InfrastructureError(
            f"Another local server runs: {_described(running)}. Choose another port, or end it"
            " with `zae-limiter local down`"
        )
    # A command that was interrupted may have left the server without its stack. Deploying twice
    # changes nothing.
    with patience(f"Deploying stack '{stack}'"):
        _provide(running)
    _print_server(running, as_json)


def _started(place: LocalPort, cache: Path, kind: str, stack: str) -> LocalServer:
    """Return the server of a port, which is installed and started if none runs."""
    running = place.running()
    if running is not None:
        return running
    place.require_free()
    program = PROGRAMS[kind]
    if not program.is_installed(cache):
        with patience(f"Installing {program.title}"):
            program.install(cache)
    return place.start(kind, stack)


def _provide(server: LocalServer) -> None:
    """Bring the stack into the server, by a process of its own: only that process has the made-up
    credentials."""
    place = ("--name", server.stack, "--region", LOCAL_REGION)
    command = [sys.executable, "-m", "zae_limiter.cli", *_deployment(server), *place]
    done = subprocess.run(
        [*command, "--endpoint-url", local_endpoint(server.port)],
        env=child_environment(server.port, server.stack),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InfrastructureError(
            f"The server runs, but stack '{server.stack}' is not in it: {done.stderr.strip()}"
        )


def _deployment(server: LocalServer) -> tuple[str, ...]:
    """Return the command that brings a stack; where there is no CloudFormation, its table alone."""
    if server.kind == "minimal":
        return ("namespace", "register", DEFAULT_NAMESPACE)
    return ("deploy",)


def _described(server: LocalServer) -> str:
    return f"{PROGRAMS[server.kind].title} with stack {server.stack} on port {server.port}"


def _print_server(server: LocalServer, as_json: bool) -> None:
    told = {
        "kind": server.kind,
        "endpoint_url": local_endpoint(server.port),
        "stack": server.stack,
        "pid": server.pid,
    }
    if as_json:
        print_json(told)
        return
    print_fields(
        "Local server:",
        {
            "Kind": PROGRAMS[server.kind].title,
            "Endpoint": told["endpoint_url"],
            "Stack": server.stack,
            "Process": server.pid,
            "To use it": f'eval "$(zae-limiter local env --port {server.port})"',
        },
    )


@local.command(epilog=examples("local down", on_a_store=False))
@_port_option
def down(port: int) -> None:
    """End the server. What was stored in it is gone."""
    ended = LocalPort(cache_folder(), port).stop()
    click.echo(
        f"No local server runs on port {port}" if ended is None else f"Ended {_described(ended)}"
    )


@local.command(epilog=examples("local status", on_a_store=False))
@_port_option
@json_option
def status(port: int, as_json: bool) -> None:
    """Show the server that runs. The exit code is 1 when none does."""
    _print_server(_require_running(port), as_json)


@local.command(epilog=examples("local logs --tail 20 --follow", on_a_store=False))
@click.option("--follow", "-f", is_flag=True, help="Go on until the server ends.")
@click.option(
    "--tail",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="How many lines to begin with.",
)
@_port_option
def logs(follow: bool, tail: int, port: int) -> None:
    """Print what the server wrote."""
    place = LocalPort(cache_folder(), port)
    lines = place.log_lines(sys.maxsize)
    print_lines(lines[len(lines) - min(tail, len(lines)) :])
    while follow and place.running() is not None:
        time.sleep(_FOLLOW_POLL_S)
        grown = place.log_lines(sys.maxsize)
        print_lines(grown[len(lines) :])
        lines = grown


@local.command(epilog=examples("local env --format direnv > .envrc", on_a_store=False))
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice(FORMATS),
    default="eval",
    show_default=True,
    help="The shell that reads the lines.",
)
@_port_option
@json_option
def env(form: str, port: int, as_json: bool) -> None:
    """Print the variables by which a program uses the server.

    The credentials are made up: AWS itself refuses them.
    """
    server = _require_running(port)
    variables = local_variables(server.port, server.stack)
    if as_json:
        print_json(variables)
    else:
        print_lines(variable_lines(variables, cast(Format, form), misleading_names()))


def _require_running(port: int) -> LocalServer:
    server = LocalPort(cache_folder(), port).running()
    if server is None:
        raise InfrastructureError(
            f"No local server runs on port {port}: start one with `zae-limiter local up`"
        )
    return server
