"""Balances of many buckets: `bucket list` and `bucket top`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.cli_runner import Zael
from tests.support.programs import hearing_interrupts


@pytest.fixture
def busy(zael: Zael) -> Zael:
    """Three keys that have used 10, 50 and 90 of 100."""
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpd:100/day", "-l", "tpd:1000/day")
    zael.out("resource", "set-defaults", "other", "-l", "rpd:100/day")
    for entity_id, amount in (("key-a", 10), ("key-b", 50), ("key-c", 90)):
        zael.out("acquire", entity_id, "gpt-4", "-t", f"rpd:{amount}", "-t", "tpd:1")
    zael.out("acquire", "key-a", "other", "-t", "rpd:1")
    return zael


def test_the_buckets_of_a_resource_are_listed_with_every_limit(busy: Zael) -> None:
    found = busy.json("bucket", "list", "-r", "gpt-4")
    assert [(each["entity_id"], each["limit_name"]) for each in found] == [
        (entity_id, name) for entity_id in ("key-a", "key-b", "key-c") for name in ("rpd", "tpd")
    ]
    assert found[0] == {
        "entity_id": "key-a",
        "resource": "gpt-4",
        "limit_name": "rpd",
        "capacity": 100,
        "available": 90,
        "consumed": 10,
        "shards": 1,
        "used_pct": 10.0,
    }


def test_the_buckets_of_an_entity_are_listed_over_all_resources(busy: Zael) -> None:
    found = busy.json("bucket", "list", "-e", "key-a")
    assert [(each["resource"], each["limit_name"]) for each in found] == [
        ("gpt-4", "rpd"),
        ("gpt-4", "tpd"),
        ("other", "rpd"),
    ]
    assert len(busy.json("bucket", "list", "-e", "key-a", "-r", "other")) == 1


def test_those_nearest_to_a_limit_come_first(busy: Zael) -> None:
    found = busy.json("bucket", "top", "-r", "gpt-4", "--rows", "3")
    assert [(each["entity_id"], each["used_pct"]) for each in found] == [
        ("key-c", 90.0),
        ("key-b", 50.0),
        ("key-a", 10.0),
    ]
    one = busy.out("bucket", "top", "-r", "gpt-4", "--limit-name", "tpd", "--rows", "1")
    assert "tpd" in one
    assert "rpd" not in one


def test_a_list_of_nothing_in_particular_is_wrong_use(busy: Zael) -> None:
    assert "Name an entity (-e) or a resource (-r)" in busy.error("bucket", "list", code=2)


def test_a_resource_without_buckets_has_an_empty_list(busy: Zael) -> None:
    assert busy.json("bucket", "list", "-r", "unknown") == []
    assert "No buckets" in busy.out("bucket", "list", "-r", "unknown")


def test_watching_goes_on_until_it_is_interrupted(busy: Zael) -> None:
    arguments = ["bucket", "top", "-r", "gpt-4", "--rows", "1", "--watch", "0.1", "--json"]
    program = subprocess.Popen(
        [*hearing_interrupts(), sys.executable, "-m", "zae_limiter.cli", *arguments],
        env={**os.environ, "ZAEL_URL": busy.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    shown = 0
    while shown < 3:
        shown += '"key-c"' in program.stdout.readline()
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=60)
    assert program.returncode == 130
