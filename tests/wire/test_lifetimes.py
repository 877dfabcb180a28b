"""Clients outlive event loops and forks, and may be dropped without being closed."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.servers.chaos import ChaosProxy
from tests.support.servers.processes import Server
from tests.support.transports import BOTH
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.per_loop import PerLoop
from zae_limiter.runtime.asyncio_driver import AsyncioIo

from .conftest import act_as_caller_of


def _client(server: Server, url: str, transport: str, patch: pytest.MonkeyPatch) -> DynamoClient:
    act_as_caller_of(server, patch)
    return open_client(
        AsyncioIo(),
        blocking=False,
        region=server.region,
        endpoint_url=url,
        transport=transport,
    )


@BOTH
def test_a_client_serves_several_loops_in_turn(
    dynamodb: Server, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChaosProxy(dynamodb.url) as proxy:
        client = _client(dynamodb, proxy.url, transport, monkeypatch)
        for _ in range(3):
            assert "TableNames" in asyncio.run(client.call("ListTables", {}))
    assert proxy.connections == 3
    # What was left open would be complained about here, and warnings are errors.
    del client
    gc.collect()


@BOTH
def test_a_client_serves_several_loops_at_once(
    dynamodb: Server, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = _client(dynamodb, dynamodb.url, transport, monkeypatch)
    found: list[bool] = []

    async def some() -> None:
        for _ in range(10):
            found.append("TableNames" in await client.call("ListTables", {}))

    threads = [threading.Thread(target=lambda: asyncio.run(some())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 40


@BOTH
async def test_a_client_that_is_forgotten_closes_its_connections(
    dynamodb: Server, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = _client(dynamodb, dynamodb.url, transport, monkeypatch)
    await client.call("ListTables", {})
    del client
    gc.collect()
    await asyncio.sleep(0.05)
    gc.collect()


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in another process, where warnings are errors."""
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "src")))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


_FORKING = """
import os, sys
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.runtime.blocking import BlockingIo, run

url, transport = sys.argv[1:]
client = open_client(
    BlockingIo(), blocking=True, region="us-east-1", endpoint_url=url, transport=transport
)
ask = lambda: "TableNames" in run(client.call("ListTables", {}))
assert ask()
child = os.fork()
for _ in range(50):
    assert ask()
if not child:
    run(client.close())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ask()
run(client.close())
print("both went on")
"""


@BOTH
def test_parent_and_child_of_a_fork_do_not_share_connections(
    dynamodb: Server, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_as_caller_of(dynamodb, monkeypatch)
    with ChaosProxy(dynamodb.url) as proxy:
        done = _run(_FORKING, proxy.url, transport)
    assert (done.stdout, done.stderr) == ("both went on\n", "")
    assert proxy.connections == 2
    assert len(proxy.requests) == 102


_GREENLETS = """
from gevent import monkey
monkey.patch_all()
import os, sys, gevent
from contextlib import ExitStack
from pathlib import Path
from tests.support.servers.authority import loopback_tls
from tests.support.servers.chaos import ChaosProxy, Delay
from tests.support.servers.tunnel import tunnel
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.edge import Limits
from zae_limiter.runtime.blocking import BlockingIo, run

upstream, way, folder = sys.argv[1:]
tls = None if way == "plain" else loopback_tls(Path(folder))[0]
# Servers and clients share one thread: a client that blocks it waits for itself.
with ExitStack() as stack:
    server = stack.enter_context(ChaosProxy(upstream, [Delay(0.02)] * 60, tls))
    if way == "tunnel":
        os.environ["HTTPS_PROXY"] = stack.enter_context(tunnel(tls=tls)).url
    client = open_client(
        BlockingIo(), blocking=True, region="us-east-1", endpoint_url=server.url,
        limits=Limits(connect_timeout_s=20, read_timeout_s=20, connections=3),
    )
    ask = lambda: "TableNames" in run(client.call("ListTables", {}))
    greenlets = [gevent.spawn(ask) for _ in range(30)]
    gevent.joinall(greenlets)
    assert [each.value for each in greenlets] == [True] * 30
    assert ask()
    run(client.close())
    print(server.connections)
"""


@pytest.mark.parametrize("way", ["plain", "tls", "tunnel"])
def test_greenlets_share_a_pool_and_do_not_stop_each_other(
    dynamodb: Server, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    act_as_caller_of(dynamodb, monkeypatch)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "trusted.pem") if way != "plain" else "")
    done = _run(_GREENLETS, dynamodb.url, way, str(tmp_path))
    assert (done.stdout, done.stderr) == ("3\n", "")


class _Doors:
    """Doors count how often they are opened and closed."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.opened = 0
        self.closed = 0

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[int]:
        self.opened += 1
        number = self.opened
        await asyncio.sleep(0.01)
        if number <= self.failures:
            raise OSError("stuck")
        try:
            yield number
        finally:
            self.closed += 1


def test_tasks_that_race_open_one_resource_and_the_loop_closes_it() -> None:
    doors = _Doors()
    held = PerLoop(doors)

    async def race() -> list[int]:
        return await asyncio.gather(*(held.get() for _ in range(100)))

    assert asyncio.run(race()) == [1] * 100
    assert (doors.opened, doors.closed) == (1, 1)
    assert asyncio.run(race()) == [2] * 100
    assert (doors.opened, doors.closed) == (2, 2)


async def test_a_resource_that_failed_to_open_is_opened_again() -> None:
    doors = _Doors(failures=1)
    held = PerLoop(doors)
    outcomes = await asyncio.gather(*(held.get() for _ in range(5)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["stuck"] * 5
    assert await held.get() == 2
    await held.close()
    assert doors.closed == 1


async def test_a_task_that_gives_up_does_not_cancel_the_opening_for_other_tasks() -> None:
    held = PerLoop(_Doors())
    first = asyncio.ensure_future(held.get())
    second = asyncio.ensure_future(held.get())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await held.get() == 1
    await held.close()


async def test_closing_waits_for_a_resource_that_is_being_opened() -> None:
    doors = _Doors()
    held = PerLoop(doors)
    opening = asyncio.ensure_future(held.get())
    await asyncio.sleep(0)
    await held.close()
    await held.close()
    assert await opening == 1
    assert (doors.opened, doors.closed) == (1, 1)
