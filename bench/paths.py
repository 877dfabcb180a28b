"""What each path of an acquire costs on DynamoDB: calls, capacity units, dollars.

    python -m bench.paths

Starts a DynamoDB of its own. The units are those that the server tells of.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping

import click
from rich import box
from rich.console import Console
from rich.table import Table
from tests.support.servers.processes import start
from tests.support.servers.tables import own_table

from .costs import RCU_DOLLARS, WCU_DOLLARS, Cost
from .scenarios import PATHS, measure

_WIDTH = 120
_MILLION = 1_000_000
HEADINGS = ("path", "calls", "WCU", "RCU", "refused", "$ per million")
# How many go together depends on how they meet, which is never quite the same.
UNSTEADY = frozenset(title for title in PATHS if "at once" in title)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table of the guide.")
@click.option("--limits", type=click.IntRange(1, 6), default=2, show_default=True)
def main(as_json: bool, as_markdown: bool, limits: int) -> None:
    """Show what each path of an acquire costs on DynamoDB."""
    costs = measure_all(limits)
    if as_json:
        click.echo(json.dumps(to_json(costs, limits), indent=2))
    elif as_markdown:
        click.echo(markdown(costs))
    else:
        Console(width=_WIDTH).print(_table(costs, limits))


def measure_all(limit_count: int) -> dict[str, Cost]:
    """Every path, by the asyncio driver, on a server that is started for it."""
    with start("dynoxide") as server:
        assert server.access_key is not None
        assert server.secret_key is not None
        os.environ["AWS_ACCESS_KEY_ID"] = server.access_key
        os.environ["AWS_SECRET_ACCESS_KEY"] = server.secret_key
        with own_table(server) as table:
            return {
                title: asyncio.run(measure(title, "asyncio", table.url, f"p{n}", limit_count))
                for n, title in enumerate(PATHS)
            }


def to_json(costs: Mapping[str, Cost], limit_count: int) -> dict[str, object]:
    """Everything that was seen."""
    return {
        "limits": limit_count,
        "dollars_per_million_wcu": WCU_DOLLARS * _MILLION,
        "dollars_per_million_rcu": RCU_DOLLARS * _MILLION,
        "paths": [
            {
                "path": title,
                "calls": cost.calls,
                "wcu": cost.wcu,
                "rcu": cost.rcu,
                "refused": cost.refused,
                "dollars_per_million": round(cost.dollars * _MILLION, 4),
            }
            for title, cost in costs.items()
        ],
    }


def markdown(costs: Mapping[str, Cost]) -> str:
    """The table as it stands in the guide."""
    lines = [_line(HEADINGS), _line(["---", *["---:"] * (len(HEADINGS) - 1)])]
    return "\n".join([*lines, *(_line(cells(title, cost)) for title, cost in costs.items())])


def _line(words: object) -> str:
    assert isinstance(words, list | tuple)
    return f"| {' | '.join(words)} |"


def cells(title: str, cost: Cost) -> list[str]:
    """One line of the table."""
    figures = (cost.calls, cost.wcu, cost.rcu, cost.refused)
    return [title, *(f"{figure:.3g}" for figure in figures), f"{cost.dollars * _MILLION:.3f}"]


def _table(costs: Mapping[str, Cost], limit_count: int) -> Table:
    caption = (
        f"Units with indexes, for {limit_count} limits. Refused: writes whose condition failed; AWS"
        f" bills one WCU for each. Assumed: ${WCU_DOLLARS * _MILLION} per million WCU,"
        f" ${RCU_DOLLARS * _MILLION} per million RCU (on demand, us-east-1)."
    )
    shown = Table(*HEADINGS[:1], box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    for heading in HEADINGS[1:]:
        shown.add_column(heading, justify="right")
    for title, cost in costs.items():
        shown.add_row(*cells(title, cost))
    return shown


if __name__ == "__main__":
    main()
