from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bench.costs import Cost, billed
from bench.counting.dynamodb import DynamoCounter, cost_of
from bench.counting.redis import RedisCounter

from tests.support.servers.processes import Server
from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.store import DynamoStore


def test_calls_and_units_are_those_that_the_client_hears_of(
    dynamodb: Server, table: OwnTable
) -> None:
    with DynamoCounter(dynamodb.url) as counter:
        place: dict[str, Any] = {"stack": table.name, "endpoint_url": counter.url}
        with SyncRepository.open(**place, region=dynamodb.region) as repository:
            repository.set_system_defaults([Limit.per_day("rpm", 10)])
            store: Any = repository.scope.store
            assert isinstance(store, DynamoStore)
            before = counter.total
            with billed(store.table) as bill:
                admitted = _take(SyncRateLimiter(repository), 12)
            spent = counter.total - before
    assert admitted == 10
    assert spent == bill.cost
    assert spent.refused == 1 + 1  # no bucket at first, and then not enough in it
    assert spent.wcu >= admitted


@pytest.mark.parametrize(("ttl_s", "asked", "again"), [(1, 1, 0), (0, 5, 4)])
def test_the_counter_notices_a_bucket_asked_again_within_a_second(
    dynamodb: Server, table: OwnTable, ttl_s: int, asked: int, again: int
) -> None:
    with DynamoCounter(dynamodb.url) as counter:
        place: dict[str, Any] = {"stack": table.name, "endpoint_url": counter.url}
        options: dict[str, Any] = {"region": dynamodb.region, "refusal_cache_ttl": ttl_s}
        with SyncRepository.open(**place, **options) as repository:
            repository.set_system_defaults([Limit.per_day("rpm", 10)])
            limiter = SyncRateLimiter(repository)
            assert _take(limiter, 10) == 10
            before = counter.total
            assert _take(limiter, 5) == 0
            spent = counter.total - before
    assert (spent.calls, spent.refused, spent.again) == (asked, asked, again)


def _take(limiter: SyncRateLimiter, times: int) -> int:
    admitted = 0
    for _ in range(times):
        try:
            with limiter.acquire("key", "model", {"rpm": 1}):
                admitted += 1
        except RateLimitExceeded:
            pass
    return admitted


@pytest.mark.parametrize(
    ("operation", "answer", "cost"),
    [
        ("UpdateItem", {"ConsumedCapacity": {"CapacityUnits": 2.0}}, Cost(1, wcu=2)),
        ("GetItem", {"ConsumedCapacity": {"CapacityUnits": 0.5}}, Cost(1, rcu=0.5)),
        (
            "BatchGetItem",
            {"ConsumedCapacity": [{"CapacityUnits": 1.5}, {"CapacityUnits": 1.0}]},
            Cost(1, rcu=2.5),
        ),
        ("UpdateItem", {"__type": "aws#ConditionalCheckFailedException"}, Cost(1, refused=1)),
        ("TransactWriteItems", {"__type": "a#TransactionCanceledException"}, Cost(1, refused=1)),
        ("PutItem", {"__type": "aws#ThrottlingException"}, Cost(1)),
    ],
)
def test_an_answer_tells_what_it_cost(operation: str, answer: dict[str, Any], cost: Cost) -> None:
    assert cost_of(operation, answer) == cost


class _Answers(socketserver.StreamRequestHandler):
    """Answers each pair of lines."""

    def handle(self) -> None:
        while self.rfile.readline() and self.rfile.readline():
            self.wfile.write(b"+OK\r\n")


@pytest.fixture
def pairs_url() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}?some=thing"
        server.shutdown()
        thread.join()


def test_commands_sent_before_an_answer_count_as_one_call(pairs_url: str) -> None:
    with RedisCounter(pairs_url) as counter:
        assert counter.url.endswith("?some=thing")
        port = int(counter.url.rpartition(":")[2].partition("?")[0])
        with socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(3):
                client.sendall(b"one\r\n")
                client.sendall(b"two\r\n")
                assert client.recv(64) == b"+OK\r\n"
    assert counter.total == Cost(3)
