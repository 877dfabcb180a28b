"""`zae-limiter system` manages the limits for all entities and resources without limits."""

from __future__ import annotations

from typing import get_args

import click

from ..core.hierarchy import SYSTEM_SLOT
from ..core.limit import Limit
from ..core.models import OnUnavailableAction
from .deletion import delete_level
from .options import change_options, examples, json_option, limits_option, store_options, yes_option
from .output import print_json, print_limits, print_line
from .target import Target


@click.group()
def system() -> None:
    """Default limits where no other level has any."""


@system.command(
    "set-defaults",
    epilog=examples("system set-defaults -l rpm:60 --on-unavailable allow"),
)
@limits_option
@click.option(
    "--on-unavailable",
    type=click.Choice(get_args(OnUnavailableAction)),
    help="What happens while the store cannot answer; by default as stored before.",
)
@json_option
@change_options
def set_defaults(
    limits: tuple[Limit, ...],
    on_unavailable: OnUnavailableAction | None,
    as_json: bool,
    target: Target,
) -> None:
    """Replace the limits that apply where no other level has any."""
    with target.open() as repository:
        repository.set_system_defaults(list(limits), on_unavailable, target.author)
    if as_json:
        stored = [limit.to_dict() for limit in limits]
        print_json({"limits": stored, "on_unavailable": on_unavailable})
        return
    print_line(f"Set {len(limits)} system default(s):")
    print_limits(limits)
    _print_on_unavailable(on_unavailable)


def _print_on_unavailable(action: OnUnavailableAction | None) -> None:
    if action is not None:
        print_line(f"  On unavailable: {action}")


@system.command("get-defaults", epilog=examples("system get-defaults"))
@json_option
@store_options
def get_defaults(as_json: bool, target: Target) -> None:
    """Show the limits that apply where no other level has any."""
    with target.connect() as repository:
        limits, on_unavailable = repository.get_system_defaults()
    if as_json:
        shown = [limit.to_dict() for limit in limits]
        print_json({"limits": shown, "on_unavailable": on_unavailable})
    elif not limits and on_unavailable is None:
        print_line("No system defaults configured")
    else:
        print_line("System defaults:")
        print_limits(limits)
        _print_on_unavailable(on_unavailable)


@system.command("delete-defaults", epilog=examples("system delete-defaults --yes"))
@yes_option
@json_option
@change_options
def delete_defaults(yes: bool, as_json: bool, target: Target) -> None:
    """Delete the system's limits and its `on_unavailable`."""
    delete_level(target, SYSTEM_SLOT, "system defaults", yes=yes, as_json=as_json)
