"""`zae-limiter limits simulate` tries a manifest on usage of a store, or of files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_runner import Zael
from zae_limiter import Limit, SyncRateLimiter, SyncRepository, UsageSnapshot

MANIFEST = """\
namespace: default
resources: {gpt-4: {limits: {rpm: 10/min, tpm: 20000/min}}}
entities: {acme: {limits: {rpm: 2/hour}}}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    file = tmp_path / "limits.yaml"
    file.write_text(MANIFEST, encoding="utf-8")
    return str(file)


def hour(entity_id: str, number: int, requests: int, **counters: int) -> dict[str, Any]:
    start = f"2026-01-01T{number:02}"
    window = (f"{start}:00:00Z", f"{start}:59:59Z", "hourly")
    return asdict(UsageSnapshot(entity_id, "gpt-4", *window, counters, requests))


USAGE = [
    hour("acme", 1, 60, rpm=60, tpm=30_000),
    hour("key", 1, 60, rpm=60, tpm=30_000),
    hour("bob", 1, 5, rpm=5, tpm=2_500),
    hour("bob", 2, 5, rpm=5, tpm=2_500),
    {**hour("bob", 0, 10, rpm=10), "window_type": "daily"},
]


@pytest.fixture
def usage(tmp_path: Path) -> str:
    file = tmp_path / "usage.json"
    file.write_text(json.dumps(USAGE), encoding="utf-8")
    return str(file)


def rows(printed: dict[str, Any]) -> list[tuple[object, ...]]:
    names = ("entity_id", "limit", "used", "requests", "refused_least", "refused_most")
    return [tuple(each[name] for name in names) for each in printed["limits"]]


def test_a_manifest_is_tried_on_files_without_a_store(
    zael: Zael, manifest: str, usage: str
) -> None:
    printed = zael.json("limits", "simulate", manifest, "--from", usage)
    assert rows(printed) == [
        ("acme", "rpm", 60, 60, 56, 58),
        ("key", "rpm", 60, 60, 0, 50),
        ("key", "tpm", 30_000, 60, 0, 20),
        ("bob", "rpm", 10, 10, 0, 0),
        ("bob", "tpm", 5_000, 10, 0, 0),
    ]
    assert printed["first_window"] == "2026-01-01T01:00:00Z"
    assert printed["windows"] == 4
    assert not zael.path.exists()


def test_the_table_shows_the_limits_that_may_refuse_and_counts_the_others(
    zael: Zael, manifest: str, usage: str
) -> None:
    assert zael.out("limits", "simulate", manifest, "--from", usage, "--rows", "2") == (
        "+--------+----------+-------+--------+------+----------+----------+\n"
        "| Entity | Resource | Limit | Rate   | Used | Requests |  Refused |\n"
        "+--------+----------+-------+--------+------+----------+----------+\n"
        "| acme   | gpt-4    | rpm   | 2/hour |   60 |       60 | 56 to 58 |\n"
        "| key    | gpt-4    | rpm   | 10/min |   60 |       60 |  0 to 50 |\n"
        "+--------+----------+-------+--------+------+----------+----------+\n"
        "4 hourly window(s) of usage from 2026-01-01T01:00:00Z to 2026-01-01T02:00:00Z\n"
        "Limits in use: 1 would have refused, 2 might have, 2 would not\n"
        "1 more are not shown: raise --rows\n"
    )


def test_usage_is_chosen_by_resource_window_and_time(zael: Zael, manifest: str, usage: str) -> None:
    def count(*options: str) -> int:
        found: int = zael.json("limits", "simulate", manifest, "--from", usage, *options)["windows"]
        return found

    assert count("-r", "gpt-4") == 4
    assert count("-r", "gpt-5") == 0
    assert count("-w", "daily") == 1
    assert count("--start", "2026-01-01T02:00:00Z") == 1
    assert count("--end", "2026-01-01T01:30:00Z") == 3
    nothing = zael.out("limits", "simulate", manifest, "--from", usage, "-r", "gpt-5")
    assert "No usage found" in nothing


def test_a_store_and_its_exported_usage_give_the_same_answer(
    zael: Zael, manifest: str, tmp_path: Path
) -> None:
    with SyncRepository.open(url=zael.url) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_resource_defaults(
            "gpt-4", [Limit.per_minute("rpm", 1000), Limit.per_minute("tpm", 100_000)]
        )
        limiter.create_entity("acme")
        limiter.create_entity("key", parent_id="acme", cascade=True)
        # Not managed by the manifest, so that it stays in force.
        limiter.set_limits("bob", [Limit.per_hour("rpm", 1)], "gpt-4", inherit=True)
        for entity in ("key", "bob"):
            with limiter.acquire(entity, "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
                lease.adjust(rpm=11, tpm=0)
    before = zael.json("limits", "export")
    printed = zael.json("limits", "simulate", manifest)
    assert {each["rate"] for each in printed["limits"] if each["entity_id"] == "bob"} == {
        "1/hour",
        "20000/min",
    }
    assert zael.json("limits", "export") == before
    files: list[str] = []
    for form in ("--json", "--csv"):
        file = tmp_path / f"usage{form}"
        file.write_text(zael.out("usage", "list", "-r", "gpt-4", "-w", "hourly", form))
        files += ["--from", str(file)]
        alone = zael.json("limits", "simulate", manifest, "--from", str(file))
        kept = [each for each in printed["limits"] if each["entity_id"] != "bob"]
        assert [each for each in alone["limits"] if each["entity_id"] != "bob"] == kept
        assert alone["windows"] == printed["windows"]
    assert "is there twice" in zael.error("limits", "simulate", manifest, *files)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "is not UTF-8"),
        (b"{}", "is not a list"),
        (b"[", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1]", "must have"),
        (b"a,b\n1,2\n", "has no column amount"),
        (b"a,b\n" + b"1" * 200_000, "is not CSV"),
        (json.dumps([{**USAGE[0], "entity_id": "a#b"}]).encode(), "entity_id"),
        (json.dumps([{**USAGE[0], "window_type": "weekly"}]).encode(), "must be one of hourly"),
        (json.dumps([{**USAGE[0], "window_start": "soon"}]).encode(), "must be ISO 8601"),
        (json.dumps([{**USAGE[0], "window_end": "2020-01-01"}]).encode(), "before its start"),
        (json.dumps([{**USAGE[0], "counters": {"rpm": "1"}}]).encode(), "must be an integer"),
        (json.dumps([USAGE[0], USAGE[0]]).encode(), "is there twice"),
    ],
)
def test_a_file_that_holds_no_usage_is_refused(
    zael: Zael, manifest: str, tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "usage"
    file.write_bytes(content)
    assert message in zael.error("limits", "simulate", manifest, "--from", str(file))


def test_without_usage_files_a_store_must_be_named(zael: Zael, manifest: str) -> None:
    zael.url = ""
    assert "Name the store" in zael.error("limits", "simulate", manifest, code=2)
