"""What acquires cost, asked of the server, and that the guide says the same."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.costs import RCU_DOLLARS, WCU_DOLLARS, Cost
from bench.item_size import item_bytes
from bench.paths import UNSTEADY, cells
from bench.scenarios import CROWD, PATHS, Stage, measure, take

from tests.support import crowd
from tests.support.drivers import Driver, limiter_on, open_repository
from tests.support.dynamodb import IS_EXACT, new_name
from tests.support.servers.chaos import ChaosProxy, Hold
from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable, own_table
from zae_limiter import Limit
from zae_limiter.backends.dynamodb.url import dynamodb_url
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.flows.shards.items import read_all, split_shard
from zae_limiter.runtime import ids
from zae_limiter.testing import ManualClock

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


def rows() -> dict[str, list[str]]:
    """The lines of the guide's table, by path."""
    table = GUIDE.partition("<!-- paths -->")[2].partition("<!-- end of paths -->")[0]
    lines = [line.strip("|").split("|") for line in table.strip().splitlines()[2:]]
    return {title.strip(): [cell.strip() for cell in rest] for title, *rest in lines}


@pytest.fixture(scope="module")
def shared_table(dynamodb: Server) -> Iterator[OwnTable]:
    with pytest.MonkeyPatch.context() as patch:
        if dynamodb.access_key and dynamodb.secret_key:
            patch.setenv("AWS_ACCESS_KEY_ID", dynamodb.access_key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", dynamodb.secret_key)
        with own_table(dynamodb) as made:
            yield made


@pytest.fixture(params=["asyncio", "blocking"])
def facade(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


def cost_of(title: str, facade: Driver, table: OwnTable, limit_count: int) -> Cost:
    return asyncio.run(measure(title, facade, table.url, new_name(), limit_count))


@pytest.mark.parametrize("limit_count", [1, 6])
@pytest.mark.parametrize("title", [title for title in PATHS if title not in UNSTEADY])
def test_every_path_costs_what_the_guide_says(
    title: str, facade: Driver, shared_table: OwnTable, limit_count: int
) -> None:
    cost = cost_of(title, facade, shared_table, limit_count)
    told = rows()[title]
    if IS_EXACT:
        assert cells(title, cost)[1:] == told
    calls, wcu, rcu, refused, _ = map(float, told)
    assert (cost.calls, cost.refused) == (calls, refused)
    if rcu == 0:
        assert (cost.wcu, cost.rcu) == (wcu, 0)


@pytest.mark.parametrize("limit_count", [1, 6])
async def test_acquires_that_meet_share_their_calls(
    facade: Driver, shared_table: OwnTable, dynamodb: Server, limit_count: int
) -> None:
    """The first write is answered when all others wait for it, and they go in one."""
    released = threading.Event()
    with ChaosProxy(dynamodb.url) as proxy:
        url = dynamodb_url(shared_table.name, "us-east-1", proxy.url)
        stage = Stage(facade, url, new_name(), limit_count)
        await stage.process()
        await stage.limiter.set_system_defaults(stage.limits)
        await stage.take()
        scope = stage.opened[0].scope
        home = BucketAddress(scope.namespace_id, "key", "gpt-4")
        call = asyncio.ensure_future if facade == "asyncio" else crowd.in_thread
        proxy.use([Hold(released)])
        proxy.heard.clear()
        with stage.bill():
            calls = [call(take(stage.limiter, stage.amounts()))]
            await asyncio.to_thread(proxy.heard.wait, 30)
            calls += [call(take(stage.limiter, stage.amounts())) for _ in range(CROWD - 1)]
            await crowd.until(lambda: crowd.in_line(scope, home) == CROWD - 1)
            released.set()
            await asyncio.gather(*calls)
        await stage.opened[0].close()
    assert (stage.cost.calls, stage.cost.wcu, stage.cost.rcu) == (2, 2, 0)


@pytest.mark.parametrize(
    ("title", "calls", "wcu", "rcu"),
    [
        ("acquire, warm", 1, 1, 0),
        ("acquire with a parent", 2, 2, 0),
        ("acquire with 4 levels", 4, 4, 0),
        ("acquire and adjust", 2, 2, 0),
        ("acquire and release", 2, 2, 0),
        ("acquire, the block fails: refund", 2, 2, 0),
        ("acquire that needs the refill", 2, 1, 0),
        ("acquire that needs the refill, after another process emptied the bucket", 2, 1, 0),
        ("refusal", 1, 0, 0),
        ("refusal of a bucket that is known to be short", 0, 0, 0),
        ("first acquire of an entity", 4, 4, 5),
    ],
)
def test_the_guide_keeps_the_promises(title: str, calls: int, wcu: int, rcu: int) -> None:
    told = [float(cell) for cell in rows()[title]]
    assert told[0] <= calls
    assert told[1] <= wcu
    assert told[2] <= rcu


def test_the_command_prints_what_the_guide_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.paths", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    printed = {
        each["path"]: cells("", Cost(*(each[x] for x in ("calls", "wcu", "rcu", "refused"))))[1:]
        for each in found["paths"]
    }
    assert printed.keys() == rows().keys()
    steady = printed.keys() - UNSTEADY
    assert {title: printed[title] for title in steady} == {t: rows()[t] for t in steady}
    assert found["dollars_per_million_wcu"] == WCU_DOLLARS * 1e6
    prices = f"${WCU_DOLLARS * 1e6} for a million WCU and ${RCU_DOLLARS * 1e6}\nfor a million RCU"
    assert prices in GUIDE


@pytest.mark.parametrize("levels", [2, 3])
def test_levels_are_charged_at_the_same_time(
    facade: Driver, levels: int, shared_table: OwnTable, dynamodb: Server
) -> None:
    """No answer comes before every level has been asked."""
    released = threading.Event()
    with ChaosProxy(dynamodb.url) as proxy:

        async def charge() -> None:
            repository = await open_repository(
                facade, new_name(), url=dynamodb_url(shared_table.name, "us-east-1", proxy.url)
            )
            limiter = limiter_on(repository, default_limits=[Limit.per_hour("rpm", 100)])
            ids = [f"level-{level}" for level in range(levels)]
            for child, parent in zip(ids, [*ids[1:], None], strict=True):
                await limiter.create_entity(child, parent_id=parent, cascade=parent is not None)
            await take(limiter, {"rpm": 1}, ids[0])
            proxy.requests.clear()
            proxy.use([Hold(released)] * levels)
            await take(limiter, {"rpm": 1}, ids[0])
            await repository.close()

        work = in_thread(lambda: asyncio.run(charge()))
        until(lambda: sum(isinstance(act, Hold) for _, act in proxy.requests) == levels)
        assert work.is_alive()
        released.set()
        work.join(30)
        assert not work.is_alive()
        assert [request.operation for request, _ in proxy.requests] == ["UpdateItem"] * levels


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


FORMULA = (
    "380 + limits * (60 + 6 * length of a limit's name) + 5 * (length of entity id + of resource)"
)
SHORT = ["rpm", "tpm", "rph", "tph", "rpd", "tpd"]
LONG = [f"requests-{n:03}" for n in range(4)]


@pytest.mark.parametrize(("names", "fits"), [(SHORT, True), (LONG, False)], ids=["short", "long"])
async def test_an_item_of_six_limits_with_short_names_fits_into_one_unit(
    table: OwnTable, names: list[str], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its numbers have become long, and those of its operations."""
    # Numbers of the two cases that meet would be ids that meet: the clock stands still.
    monkeypatch.setattr(ids, "_numbers", itertools.count(0xF000 if fits else 0xF800))
    entity_id, parent_id, resource = "e" * 20, "p" * 20, "gpt-4o-mini"
    clock = ManualClock()
    async with await open_repository("asyncio", url=table.url, clock=clock) as repository:
        await repository.create_entity(entity_id, parent_id=parent_id, cascade=True)
        await repository.set_limits(entity_id, [Limit.per_day(n, 123_456_789) for n in names])
        limiter = limiter_on(repository)
        for _ in range(12):
            clock.advance(9_876.543)
            await take(limiter, dict.fromkeys(names, 11_111_117), entity_id, resource)
        (item,) = [each for each in table.items() if "rf" in each]
        home = BucketAddress(repository.namespace_id, entity_id, resource)
        found = await read_all(repository.scope, home)
        assert await split_shard(repository.scope, home, found[home])
    told = 380 + len(names) * (60 + 6 * len(names[0])) + 5 * len(entity_id + resource)
    told += len("parent_id" + parent_id)
    assert 0.95 * told <= item_bytes(item) <= told
    assert (item_bytes(item) <= 1024) == fits
    parts = [each for each in table.items() if "rf" in each]
    assert len(parts) == 2
    assert not fits or max(map(item_bytes, parts)) <= 1024
    assert FORMULA in GUIDE
