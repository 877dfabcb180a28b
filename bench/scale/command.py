"""The command line of the model."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from . import fleet, parents, quotas
from .cases import CASES, LEVELS
from .figures import Figures, figures, table
from .hot_key import Case, HotKey
from .markdown import GUIDE, with_section

SEED = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", default=SEED, show_default=True, help="The same seed, the same figures.")
@click.option("--most", type=int, help="Leave out loads of more acquires per second.")
@click.option(
    "--level", "levels", multiple=True, type=click.Choice(LEVELS), help="Only such buckets."
)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where the JSON file goes.")
@click.option("--write", is_flag=True, help="Put the tables into the guide.")
def main(
    seed: int, most: int | None, levels: tuple[str, ...], path: Path | None, write: bool
) -> None:
    """Show what one hot key comes to, by a model on virtual time, and what a large fleet costs.

    It takes minutes of CPU time, nearly all of them for the highest loads.
    """
    cases = [case for case in CASES if _is_wanted(case, most, levels)]
    if write and len(cases) < len(CASES):
        raise click.UsageError("the guide shows all cases")
    found = _run(cases, seed)
    tables = {"hot key": table(found), **arithmetic()}
    for content in tables.values():
        click.echo(f"{content}\n")
    if path is not None:
        path.write_text(json.dumps(to_json(found, seed), indent=2) + "\n", encoding="utf-8")
    if write:
        _write(tables)


def _is_wanted(case: Case, most: int | None, levels: Sequence[str]) -> bool:
    is_small = most is None or case.acquires_per_s <= most
    return is_small and (not levels or case.level.name in levels)


def arithmetic() -> dict[str, str]:
    """The tables that need no model, by their place in the guide."""
    return {"fleet": fleet.table(), "hot parent": parents.table(), "quotas": quotas.table()}


def _run(cases: Sequence[Case], seed: int) -> list[Figures]:
    # Every refund that fails is logged, and at some loads thousands do.
    logging.getLogger("zae_limiter").setLevel(logging.CRITICAL)
    found = []
    for number, case in enumerate(cases, 1):
        click.echo(f"\r{number} of {len(cases)}", err=True, nl=number == len(cases))
        found.append(figures(HotKey(case, seed).run()))
    return found


def to_json(found: Sequence[Figures], seed: int) -> dict[str, object]:
    """Everything that was seen."""
    return {
        "seed": seed,
        "hot_key": [asdict(each) for each in found],
        "fleets": [fleet.to_json(each) for each in fleet.FLEETS],
    }


def _write(tables: dict[str, str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for name, content in tables.items():
        text = with_section(text, name, content)
    GUIDE.write_text(text, encoding="utf-8")
