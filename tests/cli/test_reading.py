"""These commands show the records that limiters left in a store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.cli_runner import Zael
from zae_limiter import SyncRateLimiter, SyncRepository


class StoppedClock:
    def __init__(self, moment: str) -> None:
        self._at_ms = int(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)

    def now_ms(self) -> int:
        return self._at_ms

    def pass_time(self, seconds: float) -> bool:
        return False


@pytest.fixture
def used(zael: Zael) -> Zael:
    """Two keys of an organisation, both used in two hours long ago."""
    zael.out("entity", "create", "acme")
    for key in ("key-1", "key-2"):
        zael.out("entity", "create", key, "--parent", "acme", "--cascade")
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:100", "-l", "tpm:1000/hour:5000")
    for hour in ("2024-01-01T14:30:00", "2024-01-01T15:30:00"):
        repository = SyncRepository.connect(url=zael.url, clock=StoppedClock(hour))
        with SyncRateLimiter(repository) as limiter:
            for key, tokens in (("key-1", 300), ("key-2", 700)):
                with limiter.acquire(key, "gpt-4", {"rpm": 1, "tpm": tokens}):
                    pass
    return zael


def test_usage_is_shown_as_a_table(used: Zael) -> None:
    text = used.out("usage", "list", "-e", "key-1", "-w", "hourly")
    assert text.splitlines() == [
        "+----------------------+--------+----------+--------+--------+----------------+",
        "| Window Start         | Type   | Resource | Entity | Events | Counters       |",
        "+----------------------+--------+----------+--------+--------+----------------+",
        "| 2024-01-01T15:00:00Z | hourly | gpt-4    | key-1  |      1 | rpm=1, tpm=300 |",
        "| 2024-01-01T14:00:00Z | hourly | gpt-4    | key-1  |      1 | rpm=1, tpm=300 |",
        "+----------------------+--------+----------+--------+--------+----------------+",
    ]


def test_usage_is_shown_as_json(used: Zael) -> None:
    found = used.json("usage", "list", "-r", "gpt-4", "-w", "daily")
    assert {each["entity_id"]: each["counters"]["tpm"] for each in found} == {
        "acme": 2000,
        "key-1": 600,
        "key-2": 1400,
    }


def test_usage_is_filtered_by_time(used: Zael) -> None:
    filters = ("usage", "list", "-e", "key-1", "-w", "hourly")
    late = used.json(*filters, "--start", "2024-01-01T15:00:00Z")
    early = used.json(*filters, "--end", "2024-01-01T14:00:00")
    assert [each["window_start"] for each in late] == ["2024-01-01T15:00:00Z"]
    assert [each["window_start"] for each in early] == ["2024-01-01T14:00:00Z"]
    assert used.out(*filters, "--start", "2025-01-01T00:00:00Z") == "No usage found\n"
    assert "ISO 8601" in used.error(*filters, "--start", "yesterday")


def test_a_full_page_of_usage_says_that_there_is_more(used: Zael) -> None:
    assert "There is more" in used.out("usage", "list", "-e", "key-1", "--limit", "1")


def test_usage_is_shown_as_charts(used: Zael) -> None:
    text = used.out("usage", "list", "-e", "key-1", "-w", "hourly", "--plot")
    assert "rpm (hourly)" in text
    assert "tpm (hourly)" in text
    assert "300 |##" in text
    assert "2024-01-01T14:00:00Z to 2024-01-01T15:00:00Z" in text


def test_usage_is_summed_over_windows(used: Zael) -> None:
    text = used.out("usage", "summary", "-r", "gpt-4", "-e", "key-2", "-w", "hourly")
    assert text.splitlines() == [
        "2 hourly window(s) from 2024-01-01T14:00:00Z to 2024-01-01T15:00:00Z",
        "+-------+-------+---------+",
        "| Limit | Total | Average |",
        "+-------+-------+---------+",
        "| rpm   |     2 |     1.0 |",
        "| tpm   | 1,400 |   700.0 |",
        "+-------+-------+---------+",
    ]
    assert used.json("usage", "summary", "-e", "key-2", "-w", "hourly")["total"]["tpm"] == 1400
    assert used.out("usage", "summary", "-e", "nobody") == "No usage found\n"


def test_usage_is_summed_once_where_windows_of_several_types_are_kept(used: Zael) -> None:
    summed = used.json("usage", "summary", "-e", "key-2")
    assert (summed["window_type"], summed["total"]["tpm"]) == ("hourly", 1400)


@pytest.mark.parametrize("verb", ["list", "summary"])
def test_usage_without_entity_and_resource_is_a_usage_error(used: Zael, verb: str) -> None:
    assert "Give --entity-id, --resource or both" in used.error("usage", verb, code=2)


def test_audit_shows_the_changes_of_an_entity(used: Zael) -> None:
    used.run("entity", "set-limits", "key-1", "-r", "gpt-4", "-l", "rpm:1")
    events = used.json("audit", "list", "-e", "key-1")
    assert [event["action"] for event in events] == ["limits_set", "entity_created"]
    lines = used.out("audit", "list", "-e", "key-1").splitlines()
    assert " ".join(lines[1].split()) == ("| Timestamp | Action | Principal | Resource | Change |")
    author = events[0]["principal"]
    told = f"| limits_set | {author} | gpt-4 | limits=rpm: 1/min |"
    assert " ".join(lines[3].split()).endswith(told)


def test_audit_shows_the_changes_of_defaults(used: Zael) -> None:
    used.out("system", "set-defaults", "-l", "rpm:1")
    for whose in ("$SYSTEM", "$RESOURCE:gpt-4"):
        assert [e["action"] for e in used.json("audit", "list", "-e", whose)] == ["limits_set"]
    assert used.out("audit", "list", "-e", "nobody") == "No audit events for 'nobody'\n"


def test_audit_events_are_shown_in_pages(used: Zael) -> None:
    used.run("entity", "set-limits", "key-1", "-l", "rpm:1")
    text = used.out("audit", "list", "-e", "key-1", "--limit", "1")
    start = text.split()[-1]
    assert f"--start-event-id {start}" in text
    older = used.json("audit", "list", "-e", "key-1", "--start-event-id", start)
    assert [event["action"] for event in older] == ["entity_created"]


def test_balances_include_the_limits_of_ancestors(used: Zael) -> None:
    used.out("entity", "set-limits", "acme", "-r", "gpt-4", "-l", "rpm:5", "-l", "tpm:20/day")
    shown = used.json("bucket", "show", "key-1", "gpt-4")
    assert shown["source"] == "resource"
    assert [(e["name"], e["capacity"], e["available"]) for e in shown["limits"]] == [
        ("rpm", 100, 5),
        ("tpm", 5000, 20),
    ]
    assert [each["consumed"] for each in shown["limits"]] == [2, 600]
    assert [each["full_in_seconds"] for each in shown["limits"]] == [None, None]
    text = used.out("bucket", "show", "key-1", "gpt-4")
    assert text.startswith("Limits: the resource's defaults\n+---")
    assert "never" in text


def test_balances_refill_with_time(zael: Zael) -> None:
    zael.out("entity", "set-limits", "key-1", "-l", "tpd:100/day")
    repository = SyncRepository.connect(url=zael.url)
    with SyncRateLimiter(repository) as limiter, limiter.acquire("key-1", "gpt-4", {"tpd": 60}):
        pass
    shown = zael.json("bucket", "show", "key-1", "gpt-4")
    limit = shown["limits"][0]
    assert shown["source"] == "entity_default"
    assert (limit["available"], limit["consumed"]) == (40, 60)
    assert 0.55 * 86_400 < limit["full_in_seconds"] <= 0.6 * 86_400


def test_showing_a_balance_takes_and_creates_nothing(zael: Zael) -> None:
    zael.out("entity", "set-limits", "key-1", "-l", "rpm:10")
    zael.out("bucket", "show", "key-1", "gpt-4")
    with SyncRepository.connect(url=zael.url) as repository:
        assert repository.get_buckets("key-1") == []


def test_a_balance_without_limits_is_an_error(zael: Zael) -> None:
    zael.out("entity", "create", "key-1")
    assert "no limits are configured" in zael.error("bucket", "show", "key-1", "gpt-4")


OLD = ("--start", "2024-01-01T00:00:00Z")


def test_usage_is_printed_as_csv(used: Zael) -> None:
    lines = used.out("usage", "list", "-e", "key-1", "-w", "hourly", "--csv").splitlines()
    assert lines[0] == (
        "entity_id,resource,window_type,window_start,window_end,total_events,limit,amount"
    )
    window = "hourly,2024-01-01T15:00:00Z,2024-01-01T15:59:59Z"
    assert lines[1:3] == [f"key-1,gpt-4,{window},1,rpm,1", f"key-1,gpt-4,{window},1,tpm,300"]
    summed = used.out("usage", "summary", "-e", "key-1", "-w", "hourly", "--csv")
    assert summed == "limit,total,average\nrpm,2,1.0\ntpm,600,300.0\n"
    assert "not both" in used.error("usage", "list", "-e", "k", "--csv", "--json", code=2)


def test_usage_is_drawn_over_time(used: Zael) -> None:
    charts = used.out("usage", "plot", "-r", "gpt-4", "-w", "hourly")
    assert "tpm (hourly)" in charts
    assert "2,000 |##" in charts
    lines = used.out("usage", "plot", "-e", "key-2", "-w", "hourly", "--spark").splitlines()
    span = "2024-01-01T14:00:00Z to 2024-01-01T15:00:00Z"
    assert lines == [
        f"rpm (hourly)  ██  at most 1, {span}",
        f"tpm (hourly)  ██  at most 700, {span}",
    ]
    points = used.json("usage", "plot", "-e", "key-2", "-w", "hourly")
    assert points[0] == {
        "window_type": "hourly",
        "limit": "rpm",
        "window_start": "2024-01-01T14:00:00Z",
        "amount": 1,
    }


def test_the_entities_that_use_most_come_first(used: Zael) -> None:
    text = used.out("usage", "top", "-r", "gpt-4", "--limit-name", "tpm", *OLD)
    assert text.splitlines() == [
        "+--------+-------+-------+--------+-------+",
        "| Entity | Limit | Total |  Share | Trend |",
        "+--------+-------+-------+--------+-------+",
        "| acme   | tpm   | 2,000 | 50.0 % | ██    |",
        "| key-2  | tpm   | 1,400 | 35.0 % | ██    |",
        "| key-1  | tpm   |   600 | 15.0 % | ██    |",
        "+--------+-------+-------+--------+-------+",
        "2 window(s) from 2024-01-01T14:00:00Z to 2024-01-01T15:00:00Z",
    ]
    first = used.json("usage", "top", "-r", "gpt-4", "--rows", "1", *OLD)
    assert (first[0]["entity_id"], first[0]["total"]) == ("acme", 4)
    csv = used.out("usage", "top", "-r", "gpt-4", "--rows", "1", "--csv", *OLD)
    assert csv == "entity_id,limit,total,share_pct\nacme,rpm,4,50.0\n"
    assert used.out("usage", "top", "-r", "gpt-4") == "No usage found\n"
