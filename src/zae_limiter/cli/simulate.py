"""`zae-limiter limits simulate` tries a manifest on recorded usage."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import click

from ..core.limit_simulation import SimulatedLimit, simulate_limits
from ..core.manifest import Manifest, limit_shorthand
from ..core.models import UsageSnapshot
from ..core.windows import WINDOW_TYPES, iso, parse_iso
from ..flows.admin.simulate import (
    MAX_SNAPSHOTS,
    known_resources,
    limits_after,
    recorded_usage,
)
from ..flows.admin.usage import make_query
from ..runtime.blocking import run
from .manifest_options import aimed, manifest_argument
from .options import examples, json_option, optional_store_options, require_store
from .output import print_json, print_lines, print_table
from .target import Target
from .usage_file import read_usage_files
from .usage_options import time_options

_DEFAULT_SPAN = timedelta(days=7)
_NO_USAGE = (
    "No usage found to try the manifest on.\n"
    "Hint: name resources that have no limits of their own with -r."
)


class _Trial(NamedTuple):
    """The usage that a manifest was tried on, and what came of it."""

    namespace: str
    window_type: str
    snapshots: Sequence[UsageSnapshot]
    is_whole: bool
    limits: Sequence[SimulatedLimit]


@click.command(
    epilog=examples(
        "limits simulate examples/limits.yaml",
        "usage list -r gpt-4 -w hourly --json > usage.json",
        "limits simulate examples/limits.yaml --from usage.json",
    )
)
@manifest_argument
@click.option(
    "--from",
    "usage_files",
    metavar="USAGE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A file of `usage list` with --json or --csv, in place of the store. Repeat for several.",
)
@click.option(
    "--resource", "-r", "resources", multiple=True, help="Only this resource. Repeat for several."
)
@click.option(
    "--window",
    "-w",
    "window_type",
    type=click.Choice(WINDOW_TYPES),
    default="hourly",
    show_default=True,
    help="The windows to go by.",
)
@time_options
@click.option(
    "--rows", type=click.IntRange(1), default=20, show_default=True, help="How many to show."
)
@json_option
@optional_store_options
def simulate(
    manifest: Manifest,
    usage_files: tuple[str, ...],
    rows: int,
    as_json: bool,
    target: Target | None,
    **filters: Any,
) -> None:
    """Say who would have been refused how often, had these limits held. Nothing is changed.

    Recorded usage tells how much was used in a window, not when. So there are two bounds: use that
    is spread evenly over each window, and use that comes all at once. Shorter windows give closer
    bounds. By default the usage of the last 7 days counts.

    A refusal by a parent stands in the parent's row. With --from, the limits are those of the
    manifest alone, and no store is needed.
    """
    if usage_files:
        trial = _tried_on_files(manifest, usage_files, filters)
    else:
        trial = _tried_on_store(manifest, aimed(require_store(target), manifest), filters)
    if as_json:
        print_json(_to_dict(trial))
    else:
        _print_trial(trial, rows)


def _tried_on_files(manifest: Manifest, paths: tuple[str, ...], filters: dict[str, Any]) -> _Trial:
    query = make_query(None, "all", *_times(filters))
    wanted = filters["resources"]
    found = [
        each
        for each in read_usage_files(paths)
        if each.window_type == query.window_type
        and (not wanted or each.resource in wanted)
        and (query.start_time is None or query.start_time <= _start(each))
        and (query.end_time is None or _start(each) <= query.end_time)
    ]
    limits = simulate_limits(manifest.configs, found)
    return _Trial(manifest.namespace, filters["window_type"], found, True, limits)


def _start(snapshot: UsageSnapshot) -> str:
    return iso(parse_iso(snapshot.window_start))


def _tried_on_store(manifest: Manifest, target: Target, filters: dict[str, Any]) -> _Trial:
    with target.connect() as repository:
        scope = repository.scope
        if filters["start_time"] is None:
            now = datetime.fromtimestamp(scope.io.now_ms() / 1000, UTC)
            filters = {**filters, "start_time": iso(now - _DEFAULT_SPAN)}
        query = make_query(None, "all", *_times(filters))
        configs = run(limits_after(scope, manifest))
        resources = filters["resources"] or run(known_resources(scope, configs))
        found, is_whole = run(recorded_usage(scope, resources, query))
    limits = simulate_limits(configs, found)
    return _Trial(target.namespace, filters["window_type"], found, is_whole, limits)


def _times(filters: dict[str, Any]) -> tuple[Any, Any, Any]:
    return filters["window_type"], filters["start_time"], filters["end_time"]


def _to_dict(trial: _Trial) -> dict[str, Any]:
    first, last = _span(trial.snapshots)
    return {
        "namespace": trial.namespace,
        "window_type": trial.window_type,
        "first_window": first,
        "last_window": last,
        "windows": len(trial.snapshots),
        "complete": trial.is_whole,
        "limits": [_limit_to_dict(each) for each in trial.limits],
    }


def _span(snapshots: Sequence[UsageSnapshot]) -> tuple[str | None, str | None]:
    starts = [each.window_start for each in snapshots]
    return min(starts, default=None), max(starts, default=None)


def _limit_to_dict(found: SimulatedLimit) -> dict[str, Any]:
    return {
        "entity_id": found.entity_id,
        "resource": found.resource,
        "limit": found.limit.name,
        "rate": limit_shorthand(found.limit),
        "windows": found.windows,
        "used": found.used,
        "requests": found.requests,
        "refused_least": found.refused.least,
        "refused_most": found.refused.most,
    }


def _print_trial(trial: _Trial, rows: int) -> None:
    if not trial.snapshots:
        click.echo(_NO_USAGE)
        return
    shown = [each for each in trial.limits if each.refused.most][:rows]
    if shown:
        _print_limits(shown)
    print_lines(_summary(trial, len(shown)))


def _print_limits(shown: Sequence[SimulatedLimit]) -> None:
    numbers = ["Used", "Requests", "Refused"]
    print_table(
        ["Entity", "Resource", "Limit", "Rate", *numbers],
        [
            (
                each.entity_id,
                each.resource,
                each.limit.name,
                limit_shorthand(each.limit),
                f"{each.used:,}",
                f"{each.requests:,}",
                f"{each.refused.least:,} to {each.refused.most:,}",
            )
            for each in shown
        ],
        right=numbers,
    )


def _summary(trial: _Trial, shown: int) -> list[str]:
    certain = sum(each.refused.least > 0 for each in trial.limits)
    possible = sum(each.refused.most > 0 for each in trial.limits) - certain
    never = len(trial.limits) - certain - possible
    first, last = _span(trial.snapshots)
    lines = [
        f"{len(trial.snapshots):,} {trial.window_type} window(s) of usage from {first} to {last}",
        f"Limits in use: {certain:,} would have refused, {possible:,} might have,"
        f" {never:,} would not",
    ]
    if certain + possible > shown:
        lines.append(f"{certain + possible - shown:,} more are not shown: raise --rows")
    if not trial.is_whole:
        lines.append(f"Only {MAX_SNAPSHOTS:,} windows were read: narrow it by --start or -r")
    return lines
