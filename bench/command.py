"""The command line of the benchmark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.support.servers.install import ServerMissing

from .crew import MeasurementFailed, python
from .interrupts import interrupts
from .markdown import markdown
from .peers import environment
from .results import FORMAT, default_path, machine, save, to_json
from .runner import Agenda, Step, choose, run
from .servers import prepare
from .summary import Row
from .table import tables, targets_table
from .targets import targets
from .workloads import WORKLOADS
from .workloads.workload import FULL, NORMAL, QUICK, Scale, Workload

_WIDTH = 172
_errors = Console(stderr=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="A smoke test: everything once, and hardly at all.")
@click.option("--full", is_flag=True, help="Also what takes long: a million entities in SQLite.")
@click.option("--rounds", type=click.IntRange(1), help="How often each case is measured.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="A workload, or workload/case; * stands for anything. May be repeated.",
)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where the JSON file goes.")
@click.option("--list", "listed", is_flag=True, help="Show the names and end.")
@click.option(
    "--render",
    "rendered",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Show the JSON file of a run as Markdown, and end.",
)
def main(
    quick: bool,
    full: bool,
    rounds: int | None,
    only: tuple[str, ...],
    path: Path | None,
    listed: bool,
    rendered: Path | None,
) -> None:
    """Compare zae-limiter with other limiters: prints a table and writes a JSON file.

    Everything is measured in this one run, each case in fresh processes, in an order that
    alternates from round to round. Figures of different runs say little about each other.
    """
    if rendered:
        _render(rendered)
        return
    scale = _scale(quick, full, rounds)
    agendas = choose(WORKLOADS, only, scale)
    if not agendas:
        raise click.UsageError("nothing has such a name; --list shows all names")
    if listed:
        _list(agendas)
    else:
        _compare(agendas, scale, path)


def _render(path: Path) -> None:
    results = json.loads(path.read_text(encoding="utf-8"))
    if results["format"] != FORMAT:
        raise click.ClickException(f"{path} is of format {results['format']}, not {FORMAT}")
    click.echo(markdown(results))


def _scale(quick: bool, full: bool, rounds: int | None) -> Scale:
    if quick and full:
        raise click.UsageError("--quick and --full exclude each other")
    scale = QUICK if quick else FULL if full else NORMAL
    return scale if rounds is None else replace(scale, rounds=rounds)


def _list(agendas: Sequence[Agenda]) -> None:
    for agenda in agendas:
        for case in agenda.cases:
            click.echo(f"{agenda.workload.name}/{case.name}")


def _compare(agendas: Sequence[Agenda], scale: Scale, path: Path | None) -> None:
    started, about = datetime.now(), machine()
    try:
        with interrupts:
            _prepare(agendas)
            found = run(agendas, _progress)
    except (MeasurementFailed, environment.PeersMissing, ServerMissing) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        _errors.print("Interrupted: no results.")
        raise SystemExit(130) from None
    path = path or default_path(started)
    save(path, to_json(found, scale, about, started))
    _show(found)
    click.echo(f"Details: {path}")


def _show(found: Sequence[tuple[Workload, Sequence[Row]]]) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    for each in tables(found):
        console.print(each)
    reached = targets(found)
    if reached:
        console.print(targets_table(reached))


def _prepare(agendas: Sequence[Agenda]) -> None:
    """Install what is missing. That may take long, so it may be interrupted."""
    subjects = {case.subject for agenda in agendas for case in agenda.cases}
    with interrupts.listening(), _errors.status("Looking for the other limiters and for servers"):
        for which in sorted({subject.environment for subject in subjects}):
            python(which)
        for store in sorted({subject.store for subject in subjects}):
            prepare(store)


def _progress(steps: Sequence[Step]) -> Iterator[Step]:
    return _bar(steps) if _errors.is_terminal else _lines(steps)


def _lines(steps: Sequence[Step]) -> Iterator[Step]:
    """For a log: a line when a workload begins."""
    begun: set[str] = set()
    started_s = time.monotonic()
    for number, step in enumerate(steps, 1):
        if step.workload.name not in begun:
            passed = timedelta(seconds=int(time.monotonic() - started_s))
            click.echo(f"{number} of {len(steps)}, {passed}: {step.workload.name}", err=True)
            begun.add(step.workload.name)
        yield step


def _bar(steps: Sequence[Step]) -> Iterator[Step]:
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=_errors, transient=True) as progress:
        task = progress.add_task("", total=len(steps))
        for step in steps:
            progress.update(task, description=str(step))
            yield step
            progress.advance(task)
