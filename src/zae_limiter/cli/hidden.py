"""This module warns of limits that other limits hide."""

from __future__ import annotations

from collections.abc import Iterable

import click

from ..core.hierarchy import ConfigSlot
from ..core.limit import Limit
from ..core.text import printable
from ..flows.admin.limits import hidden_limits
from ..runtime.blocking import run
from ..sync_repository import SyncRepository


def warn_of_hidden(repository: SyncRepository, slot: ConfigSlot, limits: Iterable[Limit]) -> None:
    """Say on stderr which limits of the next levels do not apply beside the limits that were set,
    since limits of a level replace those of the next."""
    names = {limit.name for limit in limits}
    for name, levels in sorted(run(hidden_limits(repository.scope, slot, names)).items()):
        shown = (
            " and ".join(levels) if len(levels) < 3 else f"{levels[0]} and {len(levels) - 1} more"
        )
        text = f"Warning: '{name}' of {shown} does not apply here any more; --inherit keeps it"
        click.echo(printable(text), err=True)
