"""The guide to scale says what `python -m bench.scale` prints."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from bench.scale import figures, fleet, parents
from bench.scale.cases import CASES
from bench.scale.command import SEED, arithmetic
from bench.scale.fleet import Fleet, Level
from bench.scale.lanes import item_writes_per_s, shards_needed
from bench.scale.markdown import GUIDE, section, with_section
from bench.scale.records import bucket_bytes, config_reads
from bench.scale.table import PARTITION_WCU_PER_S

from zae_limiter.core.shards import MAX_SHARDS

ROOT = Path(__file__).parents[2]
TEXT = GUIDE.read_text(encoding="utf-8")
ADVICE = "run `python -m bench.scale --write`, and read what the guide says around the table"
CHEAP = [case for case in CASES if case.level.name == "falling" and case.acquires_per_s == 1000]


# Any change of a flow draws other chances: figures move a little, but not what they say.
STEADY = [
    figures.HEADINGS.index(heading)
    for heading in ("admitted/s", "writes/s", "acquires per write", "shards", "$ per million")
]


def rows(name: str) -> list[list[str]]:
    return [cells(line) for line in section(TEXT, name).splitlines()]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def number(cell: str) -> float:
    return float(cell.replace(",", "").removesuffix("%"))


@pytest.mark.parametrize("name", arithmetic())
def test_the_guide_shows_the_calculated_figures(name: str) -> None:
    assert section(TEXT, name) == arithmetic()[name], ADVICE


def test_the_guide_has_a_line_for_each_case() -> None:
    headings, _, *lines = rows("hot key")
    assert tuple(headings) == figures.HEADINGS
    told = [tuple(line[:3]) for line in lines]
    assert told == [(c.level.name, f"{c.acquires_per_s:,}", f"{c.processes}") for c in CASES]


def test_the_command_prints_what_the_guide_says(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    chosen = ["--level", "falling", "--most", "1000", "--json", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", *chosen],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for content in arithmetic().values():
        assert content in done.stdout
    printed = [cells(line) for line in done.stdout.splitlines() if line.startswith("| falling |")]
    told = rows("hot key")[2 : 2 + len(CHEAP)]
    assert [row[:3] for row in printed] == [row[:3] for row in told]
    for shown, said in zip(printed, told, strict=True):
        for column in STEADY:
            assert number(shown[column]) == pytest.approx(number(said[column]), rel=0.25), ADVICE
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["seed"] == SEED
    assert [each["processes"] for each in found["hot_key"]] == [c.processes for c in CHEAP]
    assert [each["title"] for each in found["fleets"]] == [f.title for f in fleet.FLEETS]


def test_only_all_cases_are_written_into_the_guide() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", "--write", "--most", "10"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert GUIDE.read_text(encoding="utf-8") == TEXT


def test_a_section_is_replaced_and_nothing_else() -> None:
    text = "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n"
    changed = with_section(text, "x", "new")
    assert changed == "a\n<!-- x -->\nnew\n<!-- end of x -->\nb\n"
    assert section(changed, "x") == "new"
    with pytest.raises(LookupError):
        with_section(text, "y", "new")


def test_the_shards_needed_are_the_fewest_that_suffice() -> None:
    for load in parents.LOADS_PER_S:
        for processes in parents.PROCESSES:
            shards = shards_needed(load, processes)
            if shards is None:
                assert item_writes_per_s(load, processes, MAX_SHARDS) > PARTITION_WCU_PER_S
                continue
            assert item_writes_per_s(load, processes, shards) <= PARTITION_WCU_PER_S
            if shards > 1:
                assert item_writes_per_s(load, processes, shards // 2) > PARTITION_WCU_PER_S


def test_an_item_sees_at_most_one_write_at_a_time_and_one_per_acquire() -> None:
    assert item_writes_per_s(1_000_000, 4, 1) == pytest.approx(4 / 0.005)
    assert item_writes_per_s(1, 50, 1) == pytest.approx(1, rel=1e-3)


def test_a_key_that_is_always_known_is_read_once_a_lifetime() -> None:
    busy = Fleet("busy", (Level(1),), acquires_per_s=1000, processes=4, homes=4)
    assert busy.misses_per_s == pytest.approx(4 / 60, rel=1e-3)
    cold = Fleet("cold", (Level(10**9),), acquires_per_s=1000, processes=4, homes=4)
    assert cold.misses_per_s == pytest.approx(1000, rel=1e-3)


def test_shared_configuration_is_read_once_a_lifetime_by_each_process() -> None:
    many = Fleet("", (Level(10**6),), acquires_per_s=1000, processes=30, cache_ttl_s=60)
    assert many.system_rcu_per_s == 0.5
    assert many.rcu_per_s == pytest.approx(many.misses_per_s + 4 * 0.5)


def test_levels_and_adjusts_are_writes() -> None:
    alone = Fleet("alone", (Level(10),), acquires_per_s=100, homes=1)
    assert alone.wcu_per_s == 100
    assert Fleet("", alone.levels, acquires_per_s=100, homes=1, adjusts=True).wcu_per_s == 200
    parent = Fleet("", (Level(10), Level(1)), acquires_per_s=100, processes=2, homes=1)
    assert parent.wcu_per_s == pytest.approx(200 + 50 * (1 - math.exp(-0.2)))


def test_money_is_units_times_prices() -> None:
    alone = Fleet("alone", (Level(10),), acquires_per_s=100, processes=1, homes=1)
    month_s = 730 * 3600
    writes, reads = 100 * month_s * 0.625e-6, alone.rcu_per_s * month_s * 0.125e-6
    assert alone.on_demand_dollars == pytest.approx(writes + reads, rel=1e-4)
    assert alone.per_million(alone.on_demand_dollars) == pytest.approx(0.625, rel=0.01)


def test_a_key_is_one_unit_to_read_and_stored_in_a_few_hundred_bytes() -> None:
    first, other = config_reads()
    assert (first.rcu, first.system_rcu) == (5, 1)
    assert (other.rcu, other.system_rcu) == (1, 0)
    assert 1024 < bucket_bytes() < 2048
