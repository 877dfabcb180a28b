"""`zae-limiter doctor` on a SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_runner import Zael
from tests.support.cli_schema import assert_as_published
from zae_limiter import SyncRateLimiter, SyncRepository


@pytest.fixture
def used(zael: Zael) -> Zael:
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:100")
    zael.out("entity", "create", "key-1")
    zael.out("entity", "set-limits", "key-1", "-r", "gpt-4", "-l", "rpm:50")
    zael.out("acquire", "key-1", "gpt-4", "-t", "rpm:1")
    return zael


def findings(zael: Zael, *args: str, code: int) -> dict[str, dict[str, Any]]:
    result = zael.run("doctor", "--json", *args)
    assert result.exit_code == code, result.output
    told = json.loads(result.stdout)
    assert_as_published(("doctor",), told)
    assert told["healthy"] is (code == 0)
    return {each["check"]: each for each in told["findings"]}


def test_a_sound_file_is_healthy(used: Zael) -> None:
    found = findings(used, code=0)
    assert {each["state"] for each in found.values()} == {"ok"}
    assert found["records"]["message"] == "1 entities, 2 records of limits"
    assert found["buckets"]["message"] == "1 bucket items"
    text = used.out("doctor")
    assert text.splitlines()[0] == "ok       versions       compatible"
    assert text.endswith("0 problem(s), 0 warning(s)\n")


@pytest.mark.parametrize(
    ("statement", "check"),
    [
        ("UPDATE buckets SET state = 'nonsense'", "buckets"),
        ("UPDATE entities SET metadata = 'nonsense'", "records"),
        ("UPDATE configs SET limits = 'nonsense' WHERE entity_id = 'key-1'", "records"),
        ("UPDATE configs SET limits = 'nonsense' WHERE entity_id = ''", "records"),
    ],
)
def test_a_damaged_record_is_found_and_named(used: Zael, statement: str, check: str) -> None:
    with sqlite3.connect(used.path) as db:
        db.execute(statement)
    found = findings(used, code=1)[check]
    assert found["state"] == "problem"
    assert "1 that cannot be read" in found["message"]
    assert "restore them from a backup" in found["fix"]


def test_a_damaged_file_is_found(used: Zael) -> None:
    with sqlite3.connect(used.path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'audit'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with used.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    assert findings(used, code=1)["file"]["state"] == "problem"


def test_a_missing_store_is_a_problem_and_is_not_made(zael: Zael, tmp_path: Path) -> None:
    found = findings(zael, code=1)
    assert "No limiter found" in found["store"]["message"]
    assert not list(tmp_path.iterdir())
    zael.out("namespace", "register", "tenant-a")
    found = findings(zael, "-N", "tenant-b", code=1)
    assert found["namespace"]["fix"] == "`zae-limiter namespace register tenant-b` makes it."


def test_no_more_buckets_are_read_than_allowed(used: Zael) -> None:
    with SyncRepository.connect(url=used.url) as repository:
        limiter = SyncRateLimiter(repository)
        for number in range(60):
            with limiter.acquire(f"many-{number}", "gpt-4", {"rpm": 1}):
                pass
    found = findings(used, "--buckets", "10", code=0)
    assert "there are more: raise --buckets" in found["buckets"]["message"]


def test_a_file_that_is_cut_short_is_told_to_be_restored(used: Zael) -> None:
    used.path.write_bytes(used.path.read_bytes()[:3000])
    found = findings(used, code=1)["store"]
    assert "cut short" in found["message"]
    assert "backup" in found["fix"]


def test_a_file_that_may_not_be_read_is_told_with_the_room_on_its_disk(used: Zael) -> None:
    used.path.chmod(0)
    arguments = [*without_privileges(), sys.executable, "-m", "zae_limiter.cli", "doctor"]
    done = subprocess.run(
        [*arguments, "--json", "--url", used.url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stderr
    found = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    assert "cannot be opened" in found["store"]["message"]
    assert "permissions" in found["store"]["fix"]
    assert "free on its disk" in found["file"]["message"]


def without_privileges() -> list[str]:
    """Return the beginning of a command that runs the rest of it bound by permissions of files,
    which root is not."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
