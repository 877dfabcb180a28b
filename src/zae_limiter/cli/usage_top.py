"""`zae-limiter usage top` shows the entities that use most of a resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ..core.models import UsageSnapshot
from ..core.windows import WINDOW_TYPES, iso
from ..flows.admin.audit import MAX_PAGE
from ..sync_repository import SyncRepository
from ..visualization.sparkline import sparkline
from .options import examples, store_options
from .output import print_line, print_lines, print_table
from .target import Target
from .usage_options import OutputForm, Printed, absence, bars, form_options, time_options
from .watching import watch_option, watched

_DEFAULT_SPAN = timedelta(days=1)
# As many snapshots as a summary adds up.
_MAX_SNAPSHOTS = 10_000


@dataclass(slots=True)
class UsageTotal:
    """A total is what one entity used of one limit, over windows and by window."""

    entity_id: str
    limit: str
    total: int = 0
    share_pct: float = 0.0
    by_window: dict[str, int] = field(default_factory=dict)


@click.command(
    epilog=examples("usage top -r gpt-4", "usage top -r gpt-4 --limit-name tpm --rows 3 --csv")
)
@click.option("--resource", "-r", required=True, help="The resource.")
@click.option("--limit-name", help="The limit; by default all of them.")
@click.option(
    "--window",
    "-w",
    "window_type",
    type=click.Choice(WINDOW_TYPES),
    default="hourly",
    show_default=True,
    help="The windows to add up.",
)
@time_options
@click.option(
    "--rows", type=click.IntRange(1), default=10, show_default=True, help="How many to show."
)
@watch_option
@form_options
@store_options
def top(
    limit_name: str | None,
    rows: int,
    watch: float | None,
    form: OutputForm,
    target: Target,
    **filters: Any,
) -> None:
    """Show the entities that used most of a resource, by default in the last 24 hours.

    A parent is charged for its children and stands beside them. A share is that of all charges.
    """
    with target.connect() as repository:

        def show() -> None:
            _top(repository, filters, limit_name, rows).print(form)

        watched(watch, show, as_text=form == "text")


def _top(
    repository: SyncRepository, filters: dict[str, Any], limit_name: str | None, rows: int
) -> Printed:
    if filters["start_time"] is None:
        now = datetime.fromtimestamp(repository.scope.io.now_ms() / 1000, UTC)
        filters = {**filters, "start_time": iso(now - _DEFAULT_SPAN)}
    found, is_cut = _read(repository, filters)
    totals = [each for each in add_up(found) if limit_name in (None, each.limit)][:rows]

    def text() -> None:
        if not totals:
            print_lines(absence(repository).splitlines())
            return
        _print_totals(totals)
        if is_cut:
            many = f"{_MAX_SNAPSHOTS:,}"
            print_line(f"Only the newest {many} windows were added up: narrow --start")

    shown = [(each.entity_id, each.limit, each.total, each.share_pct) for each in totals]
    columns = ("entity_id", "limit", "total", "share_pct")
    return Printed(repository, [asdict(each) for each in totals], columns, shown, text)


def _read(repository: SyncRepository, filters: dict[str, Any]) -> tuple[list[UsageSnapshot], bool]:
    found: list[UsageSnapshot] = []
    following: dict[str, Any] | None = None
    while len(found) < _MAX_SNAPSHOTS:
        page, following = repository.get_usage_snapshots(
            limit=MAX_PAGE, next_key=following, **filters
        )
        found += page
        if following is None:
            return found, False
    return found, True


def add_up(found: Iterable[UsageSnapshot]) -> list[UsageTotal]:
    """Return the totals by entity and limit, the largest share of a limit first."""
    totals: dict[tuple[str, str], UsageTotal] = {}
    sums: Counter[str] = Counter()
    for snapshot in found:
        for name, amount in snapshot.counters.items():
            key = (snapshot.entity_id, name)
            total = totals.setdefault(key, UsageTotal(*key))
            total.total += amount
            earlier = total.by_window.get(snapshot.window_start, 0)
            total.by_window[snapshot.window_start] = earlier + amount
            sums[name] += amount
    for total in totals.values():
        total.share_pct = round(100 * total.total / max(sums[total.limit], 1), 1)
    return sorted(totals.values(), key=lambda each: (-each.share_pct, each.entity_id, each.limit))


def _print_totals(totals: list[UsageTotal]) -> None:
    windows = sorted({start for each in totals for start in each.by_window})
    numbers = ["Total", "Share"]
    print_table(
        ["Entity", "Limit", *numbers, "Trend"],
        [
            (
                each.entity_id,
                each.limit,
                f"{each.total:,}",
                f"{each.share_pct:.1f} %",
                sparkline([each.by_window.get(start, 0) for start in windows], bars()),
            )
            for each in totals
        ],
        right=numbers,
    )
    print_line(f"{len(windows)} window(s) from {windows[0]} to {windows[-1]}")
