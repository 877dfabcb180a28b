"""The installed program works on a SQLite file and on a DynamoDB table, with a terminal or not."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.installed import CTRL_C, SCRIPT, Installed
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable, own_table
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

pytestmark = pytest.mark.slow

PLACES = ["sqlite", "dynamodb"]
NARROW, WIDE = 50, 200
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture(scope="module", params=PLACES)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """The program on a store that all tests share: a process of it takes long to start."""
    folder = tmp_path_factory.mktemp("installed")
    if request.param == "sqlite":
        yield Installed(folder, f"sqlite:///{folder}/limits.db")
        return
    server: Server = request.getfixturevalue("dynamodb")
    with pytest.MonkeyPatch.context() as patch:
        if server.access_key is not None and server.secret_key is not None:
            patch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
        with own_table(server, request.getfixturevalue("maker")) as table:
            installed = Installed(folder, table.url)
            installed.table = table
            yield installed


@pytest.fixture(scope="module")
def used(place: Installed) -> Installed:
    """A key of an organisation, used once. Limits of a day gain nothing while a test runs."""
    if place.table is not None:
        with SyncRepository.open(url=place.url) as repository:
            # The table that the server has is ours when it has a version record.
            repository.create_table()
    _fill(place.url)
    if place.table is not None:
        place.out("aggregate", "--once")
    return place


def _fill(url: str) -> None:
    with SyncRepository.open(url=url) as repository:
        repository.create_entity("acme", "Acme Inc.", principal="ada")
        repository.create_entity("key-1", parent_id="acme", cascade=True, principal="ada")
        limits = [Limit.per_day("rpd", 100), Limit.parse("tpd:200/day:1000")]
        repository.set_resource_defaults("gpt-4", limits, principal="ada")
        with SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpd": 1, "tpd": 500}):
            pass


def steady(screen: str) -> list[str]:
    """Return the lines of a screen, with one timestamp in place of all."""
    return _TIMESTAMP.sub("2026-01-01T12:00:00Z", screen).splitlines()


ENTITIES_WIDE = """\
+--------+-----------+--------+---------+----------------------+
| Entity | Name      | Parent | Cascade | Created              |
+--------+-----------+--------+---------+----------------------+
| acme   | Acme Inc. | -      | no      | 2026-01-01T12:00:00Z |
| key-1  | key-1     | acme   | yes     | 2026-01-01T12:00:00Z |
+--------+-----------+--------+---------+----------------------+
"""
ENTITIES_NARROW = """\
Entity:  acme
Name:    Acme Inc.
Parent:  -
Cascade: no
Created: 2026-01-01T12:00:00Z

Entity:  key-1
Name:    key-1
Parent:  acme
Cascade: yes
Created: 2026-01-01T12:00:00Z
"""
BUCKETS_WIDE = """\
+--------+----------+-------+----------+-----------+--------+----------+--------+
| Entity | Resource | Limit | Capacity | Available |   Used | Consumed | Shards |
+--------+----------+-------+----------+-----------+--------+----------+--------+
| acme   | gpt-4    | tpd   |    1,000 |       500 | 50.0 % |      500 |      1 |
| key-1  | gpt-4    | tpd   |    1,000 |       500 | 50.0 % |      500 |      1 |
| acme   | gpt-4    | rpd   |      100 |        99 |  1.0 % |        1 |      1 |
| key-1  | gpt-4    | rpd   |      100 |        99 |  1.0 % |        1 |      1 |
+--------+----------+-------+----------+-----------+--------+----------+--------+
"""
EVENTS_WIDE = """\
+----------------------+----------------+-----------+----------+\
-----------------------------------------+
| Timestamp            | Action         | Principal | Resource |\
 Change                                  |
+----------------------+----------------+-----------+----------+\
-----------------------------------------+
| 2026-01-01T12:00:00Z | entity_created | ada       | -        |\
 cascade=yes; name=key-1; parent_id=acme |
+----------------------+----------------+-----------+----------+\
-----------------------------------------+
"""
EVENTS_NARROW = """\
Timestamp: 2026-01-01T12:00:00Z
Action:    entity_created
Principal: ada
Resource:  -
Change:    cascade=yes; name=key-1; parent_id=acme
"""
SUMMARY_NARROW = """\
1 hourly window(s) from 2026-01-01T12:00:00Z to
  2026-01-01T12:00:00Z
+-------+-------+---------+
| Limit | Total | Average |
+-------+-------+---------+
| rpd   |     1 |     1.0 |
| tpd   |   500 |   500.0 |
+-------+-------+---------+
"""
SPARK_NARROW = """\
rpd (hourly)  █  at most 2, 2026-01-01T12:00:00Z
tpd (hourly)  █  at most 1,000,
  2026-01-01T12:00:00Z
"""
SCREENS = [
    (("entity", "list"), WIDE, ENTITIES_WIDE),
    (("entity", "list"), NARROW, ENTITIES_NARROW),
    (("audit", "list", "-e", "key-1"), WIDE, EVENTS_WIDE),
    (("audit", "list", "-e", "key-1"), NARROW, EVENTS_NARROW),
    (("usage", "summary", "-e", "key-1"), NARROW, SUMMARY_NARROW),
    (("usage", "plot", "-r", "gpt-4", "-w", "hourly", "--spark"), NARROW, SPARK_NARROW),
]
READING = [
    ("audit", "list", "-e", "$RESOURCE:gpt-4"),
    ("available", "key-1", "gpt-4", "-t", "rpd:200"),
    ("bucket", "list", "-e", "key-1"),
    ("bucket", "show", "key-1", "gpt-4"),
    ("bucket", "top", "-r", "gpt-4"),
    ("config", "get", "--level", "resource", "--resource", "gpt-4"),
    ("doctor",),
    ("entity", "children", "acme"),
    ("entity", "get-limits", "key-1"),
    ("entity", "list"),
    ("entity", "list-resources"),
    ("entity", "show", "key-1"),
    ("namespace", "list"),
    ("namespace", "orphans"),
    ("namespace", "show", "default"),
    ("resource", "get-defaults", "gpt-4"),
    ("resource", "list"),
    ("system", "get-defaults"),
    ("usage", "list", "-e", "key-1"),
    ("usage", "plot", "-r", "gpt-4"),
    ("usage", "summary", "-r", "gpt-4"),
    ("usage", "top", "-r", "gpt-4"),
    ("check",),
    ("version",),
]
CHANGING = [
    ("config", "set", "--level", "system", "--on-unavailable", "allow"),
    ("entity", "create", "key-2"),
    ("entity", "update", "key-2", "-m", "tier=gold"),
    ("entity", "set-limits", "key-2", "-l", "rpd:5/day"),
    ("entity", "delete-limits", "key-2", "--yes"),
    ("entity", "delete", "key-2", "--yes"),
    ("entity", "delete", "key-2", "--yes"),
    ("namespace", "register", "tenant-a"),
    ("namespace", "delete", "tenant-a", "--yes"),
    ("resource", "set-defaults", "gpt-5", "-l", "rpd:5/day"),
    ("resource", "delete-defaults", "gpt-5", "--yes"),
    ("system", "set-defaults", "-l", "rpd:5/day"),
    ("system", "delete-defaults", "--yes"),
]


def test_a_terminal_of_50_and_of_200_columns_shows_whole_words_and_timestamps(
    used: Installed,
) -> None:
    for command, columns, expected in SCREENS:
        code, screen = used.on_terminal(*command, columns=columns)
        assert (code, steady(screen)) == (0, expected.splitlines()), screen


def test_commands_that_read_keep_to_the_terminal_and_change_nothing(used: Installed) -> None:
    before = stored(used)
    for command in READING:
        code, screen = used.on_terminal(*command, columns=NARROW)
        assert code == 0, screen
        wide = [line for line in screen.splitlines() if len(line) > NARROW]
        assert not wide, f"{command}: {wide}"
    assert stored(used) == before


def stored(installed: Installed) -> str:
    if installed.table is not None:
        return installed.table.dump()
    files = sorted(installed.folder.iterdir())
    return "\n".join(f"{path.name} {path.read_bytes().hex()}" for path in files)


def test_output_without_a_terminal_is_a_grid_of_any_width(used: Installed) -> None:
    assert steady(used.out("entity", "list")) == ENTITIES_WIDE.splitlines()
    assert steady(used.out("bucket", "top", "-r", "gpt-4")) == BUCKETS_WIDE.splitlines()


def test_every_command_prints_json_as_published(used: Installed) -> None:
    for command in (*READING, *CHANGING):
        used.json(*command)
    (orphan,) = used.json("namespace", "orphans")
    used.json("namespace", "recover", orphan["namespace_id"])
    used.json("namespace", "delete", "tenant-a", "--yes")
    used.json("namespace", "purge", orphan["namespace_id"], "--yes")
    used.json("acquire", "key-1", "gpt-4", "-t", "rpd:1")
    refused = used.json("acquire", "key-1", "gpt-4", "-t", "rpd:100", code=3)
    assert refused["admitted"] is False


def test_every_kind_of_end_has_its_exit_code(used: Installed) -> None:
    used.out("entity", "show", "key-1", code=0)
    used.out("entity", "show", "nobody", code=1)
    used.out("entity", "show", code=2)
    used.out("acquire", "key-1", "gpt-4", "-t", "rpd:101", code=3)
    used.out("run", "key-1", "gpt-4", "-t", "rpd:1", "--", "sh", "-c", "exit 7", code=7)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        nowhere = f"http://127.0.0.1:{silent.getsockname()[1]}"
        silent.close()
        place = ("--name", "stack", "--region", "us-east-1", "--endpoint-url", nowhere)
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        nobody = Installed(used.folder, "")
        nobody.environment |= keys
        nobody.out("entity", "list", *place, code=4)


def test_ctrl_c_ends_a_question_and_a_watch_with_130(used: Installed) -> None:
    question = ("entity", "delete", "key-1")
    code, screen = used.on_terminal(*question, columns=80, awaited="[y/N]", typed=CTRL_C)
    assert code == 130, screen
    watch = ("bucket", "top", "-r", "gpt-4", "--watch", "0.1")
    code, screen = used.on_terminal(*watch, columns=80, awaited="\x1b[2J", typed=CTRL_C)
    assert code == 130, screen
    assert used.json("entity", "show", "key-1")["id"] == "key-1"


def test_a_question_is_answered_on_a_terminal(used: Installed) -> None:
    used.out("entity", "create", "key-3")
    question = ("entity", "delete", "key-3")
    code, screen = used.on_terminal(*question, columns=80, awaited="[y/N]", typed="n\n")
    assert code == 1, screen
    code, screen = used.on_terminal(*question, columns=80, awaited="[y/N]", typed="y\n")
    assert code == 0, screen
    assert "Deleted entity 'key-3'" in screen
    assert "nothing was deleted" in used.out("entity", "delete", "key-3", "--yes")


def test_a_pipe_that_is_closed_early_ends_a_command_without_a_traceback(used: Installed) -> None:
    for command in (
        "entity list",
        "entity list --json",
        "--help",
        "bucket top -r gpt-4 --watch 0.1",
    ):
        done = subprocess.run(
            ["sh", "-c", f"{SCRIPT} {command} | head -1"],
            env=used.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert len(done.stdout.splitlines()) == 1
        assert done.stderr == "", command


def test_usage_of_days_alone_is_summed_over_days(table: OwnTable, tmp_path: Path) -> None:
    with SyncRepository.open(url=table.url) as repository:
        repository.set_resource_defaults("gpt-4", [Limit.per_day("rpd", 100)])
        with SyncRateLimiter(repository).acquire("key-1", "gpt-4", {"rpd": 3}):
            pass
    installed = Installed(tmp_path, table.url)
    installed.out("aggregate", "--once", "--windows", "daily,monthly")
    summed = installed.json("usage", "summary", "-e", "key-1")
    assert (summed["window_type"], summed["total"]) == ("daily", {"rpd": 3})
