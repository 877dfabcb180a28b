"""`zae-limiter config` shows and sets the record of one level as a whole."""

from __future__ import annotations

import json
from typing import Any, get_args

import click

from ..core.exceptions import ValidationError
from ..core.limit import Limit
from ..core.models import ConfigLevel, LimiterConfig, OnUnavailableAction
from .options import Command, change_options, examples, json_option, store_options
from .output import print_fields, print_json, print_limits, print_line
from .target import Target


@click.group()
def config() -> None:
    """The record of one level: system, resource or entity."""


def _level_options(command: Command) -> Command:
    for option in (
        click.option("--resource", help="The resource, at levels resource and entity."),
        click.option("--identifier", help="The entity's id, at level entity."),
        click.option(
            "--level", required=True, type=click.Choice(get_args(ConfigLevel)), help="The level."
        ),
    ):
        command = option(command)
    return command


@config.command(
    "get",
    epilog=examples(
        "config get --level system",
        "config get --level entity --identifier key-1 --resource gpt-4",
    ),
)
@_level_options
@json_option
@store_options
def get_config(
    level: str, identifier: str | None, resource: str | None, as_json: bool, target: Target
) -> None:
    """Show the record of one level."""
    with target.connect() as repository:
        found = repository.get_config(level, identifier, resource)
    if as_json:
        print_json(None if found is None else found.to_dict())
    elif found is None:
        print_line(f"Nothing configured at level '{level}'")
    else:
        _print_config(f"Configuration at level '{level}':", found)


def _print_config(title: str, found: LimiterConfig) -> None:
    print_fields(
        title,
        {
            "On unavailable": found.on_unavailable,
            "Auto update": _yes_or_no(found.auto_update),
            "Strict version": _yes_or_no(found.strict_version),
            "Config version": found.config_version,
        },
    )
    print_limits(found.limits or ())


def _yes_or_no(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _read_limits(
    ctx: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[Limit, ...] | None:
    if text is None:
        return None
    try:
        listed = json.loads(text)
        if not isinstance(listed, list):
            raise ValueError("must be a JSON list")
        return tuple(_read_limit(each) for each in listed)
    except (ValueError, ValidationError) as error:
        raise click.BadParameter(str(error)) from error


def _read_limit(value: Any) -> Limit:
    if isinstance(value, str):
        return Limit.parse(value)
    try:
        return Limit.from_dict(value)
    except (KeyError, TypeError) as error:
        raise ValueError(
            'each must be a text such as "rpm:1000/min" or an object with name, capacity,'
            " refill_amount and refill_period_seconds"
        ) from error


@config.command(
    "set",
    epilog=examples(
        "config set --level system --on-unavailable allow",
        'config set --level system --limits \'["rpm:100", "tpm:10000"]\'',
    ),
)
@_level_options
@click.option(
    "--limits",
    callback=_read_limits,
    metavar="JSON",
    help="A list of limits: texts as for -l, or objects as `config get --json` prints them.",
)
@click.option(
    "--on-unavailable",
    type=click.Choice(get_args(OnUnavailableAction)),
    help="What happens while the store cannot answer (level system).",
)
@click.option(
    "--auto-update/--no-auto-update",
    default=None,
    help="Update deployed parts that are older than the client (level system).",
)
@click.option(
    "--strict-version/--no-strict-version",
    default=None,
    help="Refuse to work with other versions (level system).",
)
@json_option
@change_options
def set_config(
    level: str,
    identifier: str | None,
    resource: str | None,
    limits: tuple[Limit, ...] | None,
    on_unavailable: OnUnavailableAction | None,
    auto_update: bool | None,
    strict_version: bool | None,
    as_json: bool,
    target: Target,
) -> None:
    """Set the given fields of one level and keep the rest."""
    change = LimiterConfig(limits, on_unavailable, auto_update, strict_version)
    if change == LimiterConfig():
        raise click.UsageError("Nothing to set: give --limits or another setting.")
    with target.open() as repository:
        repository.set_config(level, change, identifier, resource, target.author)
    if as_json:
        print_json({"level": level, **change.to_dict()})
    else:
        _print_config(f"Set at level '{level}':", change)
