"""This module deletes the stored limits of one level, and tells whether there were any."""

from __future__ import annotations

import click

from ..core.hierarchy import ConfigSlot
from ..flows.admin.limits import delete_config
from ..runtime.blocking import run
from .output import print_json, print_line
from .target import Target


def delete_level(target: Target, slot: ConfigSlot, what: str, *, yes: bool, as_json: bool) -> None:
    """Delete the limits of a slot, after a question unless `yes`."""
    with target.connect() as repository:
        if not yes and not click.confirm(f"Delete {what}?", err=as_json):
            tell_deletion(False, "Cancelled", as_json=as_json)
            return
        deleted = run(delete_config(repository.scope, slot, target.author))
    told = f"Deleted {what}" if deleted else f"No {what}: nothing was deleted"
    tell_deletion(deleted, told, as_json=as_json)


def tell_deletion(deleted: bool, told: str, *, as_json: bool) -> None:
    """Print the outcome of a deletion, as text or as JSON."""
    if as_json:
        print_json({"deleted": deleted})
    else:
        print_line(told)
