"""`zae-limiter resource` manages limits of a resource, for entities without limits of their own."""

from __future__ import annotations

import click

from ..core.limit import Limit
from ..flows.admin.limits import resource_slot
from .deletion import delete_level
from .hidden import warn_of_hidden
from .options import (
    change_options,
    examples,
    inherit_option,
    json_option,
    limits_option,
    store_options,
    yes_option,
)
from .output import print_json, print_limits, print_line, print_lines
from .target import Target


@click.group()
def resource() -> None:
    """Default limits of resources."""


@resource.command(
    "set-defaults",
    epilog=examples("resource set-defaults gpt-4 -l rpm:100 -l tpm:10000"),
)
@click.argument("resource_name")
@limits_option
@inherit_option
@json_option
@change_options
def set_defaults(
    resource_name: str, limits: tuple[Limit, ...], inherit: bool, as_json: bool, target: Target
) -> None:
    """Set the limits of a resource; they replace the limits it had."""
    with target.open() as repository:
        repository.set_resource_defaults(
            resource_name, list(limits), target.author, inherit=inherit
        )
        if not inherit:
            warn_of_hidden(repository, resource_slot(resource_name), limits)
    if as_json:
        stored = [limit.to_dict() for limit in limits]
        print_json({"resource": resource_name, "limits": stored, "inherit": inherit})
        return
    print_line(f"Set {len(limits)} default(s) for resource '{resource_name}':")
    print_limits(limits)


@resource.command("get-defaults", epilog=examples("resource get-defaults gpt-4"))
@click.argument("resource_name")
@json_option
@store_options
def get_defaults(resource_name: str, as_json: bool, target: Target) -> None:
    """Show the limits of a resource."""
    with target.connect() as repository:
        limits = repository.get_resource_defaults(resource_name)
    if as_json:
        print_json([limit.to_dict() for limit in limits])
    elif not limits:
        print_line(f"No defaults configured for resource '{resource_name}'")
    else:
        print_line(f"Defaults for resource '{resource_name}':")
        print_limits(limits)


@resource.command(
    "delete-defaults",
    epilog=examples("resource delete-defaults gpt-4 --yes"),
)
@click.argument("resource_name")
@yes_option
@json_option
@change_options
def delete_defaults(resource_name: str, yes: bool, as_json: bool, target: Target) -> None:
    """Delete the limits of a resource: the system's limits decide again."""
    what = f"defaults for resource '{resource_name}'"
    delete_level(target, resource_slot(resource_name), what, yes=yes, as_json=as_json)


@resource.command("list", epilog=examples("resource list"))
@json_option
@store_options
def list_resources(as_json: bool, target: Target) -> None:
    """List the resources that have limits."""
    with target.connect() as repository:
        found = repository.list_resources_with_defaults()
    if as_json:
        print_json(found)
    elif not found:
        print_line("No resources with defaults")
    else:
        print_lines(found)
