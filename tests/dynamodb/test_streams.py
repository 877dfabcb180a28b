"""The stream of a table and the checkpoints of its readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.support.dynamodb import Runner
from zae_limiter.backends.dynamodb.checkpoints import DynamoCheckpoints, has_checkpoints
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.streams import DynamoStream, open_stream
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.errors import ErrorAnswer, exception_of
from zae_limiter.core.exceptions import InfrastructureNotFoundError, ValidationError
from zae_limiter.ports.stream import Checkpoint, IteratorExpired
from zae_limiter.runtime.blocking import run

ARN = "arn:aws:dynamodb:us-east-1:1:table/t/stream/2024-01-01T00:00:00.000"


class ScriptedClient:
    """A client whose calls are answered by a script, in order."""

    def __init__(self, *script: dict[str, Any] | str) -> None:
        self._script = list(script)
        self.sent: list[Mapping[str, Any]] = []

    async def call(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(parameters)
        answer = self._script.pop(0)
        if isinstance(answer, str):
            raise exception_of(ErrorAnswer(operation, 400, answer, "no"))
        return answer


def scripted(*script: dict[str, Any] | str) -> tuple[DynamoStream, ScriptedClient]:
    client = ScriptedClient(*script)
    return DynamoStream(cast(DynamoClient, client), ARN), client


def test_a_position_that_is_kept_no_more_begins_at_the_oldest_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream, client = scripted("TrimmedDataAccessException", {"ShardIterator": "oldest"})
    assert run(stream.begin("shard-1", "17")) == "oldest"
    kinds = [request["ShardIteratorType"] for request in client.sent]
    assert kinds == ["AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON"]
    assert "may be lost" in caplog.text


def test_a_shard_that_is_kept_no_more_has_no_iterator() -> None:
    stream, _ = scripted("ResourceNotFoundException")
    assert run(stream.begin("shard-1", None)) is None


@pytest.mark.parametrize("code", ["ExpiredIteratorException", "TrimmedDataAccessException"])
def test_an_iterator_that_can_be_used_no_more_is_told_apart(code: str) -> None:
    stream, _ = scripted(code)
    with pytest.raises(IteratorExpired):
        run(stream.read("old"))


def test_shards_are_listed_page_by_page() -> None:
    stream, client = scripted(
        {"StreamDescription": {"Shards": [{"ShardId": "a"}], "LastEvaluatedShardId": "a"}},
        {"StreamDescription": {"Shards": [{"ShardId": "b", "ParentShardId": "a"}]}},
    )
    assert run(stream.shards()) == [("a", None), ("b", "a")]
    assert client.sent[1]["ExclusiveStartShardId"] == "a"


def test_a_stream_that_is_gone_is_an_error_of_infrastructure() -> None:
    stream, _ = scripted("ResourceNotFoundException")
    with pytest.raises(InfrastructureNotFoundError):
        run(stream.shards())


def test_a_table_whose_stream_lacks_images_is_refused() -> None:
    table = {"Table": {"StreamSpecification": {"StreamViewType": "KEYS_ONLY"}}}

    class OnlyTable:
        client, name, io = ScriptedClient(table), "t", None

    with pytest.raises(ValidationError, match="NEW_AND_OLD_IMAGES"):
        run(open_stream(cast(Any, OnlyTable()), blocking=True))


def test_a_lease_is_kept_from_others_until_it_ends(driver: Runner, store: DynamoStore) -> None:
    checkpoints = DynamoCheckpoints(store.table, "label")
    now_ms = driver.io.now_ms()
    mine = driver.run(checkpoints.lease("s", "me", now_ms + 60_000))
    assert mine == Checkpoint(None, "me", now_ms + 60_000)
    assert driver.run(checkpoints.lease("s", "another", now_ms + 90_000)) == mine
    assert driver.run(checkpoints.lease("s", "me", now_ms + 90_000)).lease_ends_ms > now_ms + 60_000
    assert driver.run(checkpoints.save("s", Checkpoint("007", "me", 0)))
    taken = driver.run(checkpoints.lease("s", "another", now_ms + 90_000))
    assert taken == Checkpoint("007", "another", now_ms + 90_000)
    assert driver.run(checkpoints.read("s")) == taken


def test_a_checkpoint_never_goes_back_and_is_its_owners_alone(
    driver: Runner, store: DynamoStore
) -> None:
    checkpoints = DynamoCheckpoints(store.table, "label")
    assert not driver.run(has_checkpoints(store.table))
    assert not driver.run(store.has_reader())
    driver.run(checkpoints.lease("s", "me", driver.io.now_ms() + 60_000))
    for number, is_saved in (("9", True), ("10", True), ("9", False), ("10", True)):
        assert driver.run(checkpoints.save("s", Checkpoint(number, "me", 1))) is is_saved
    assert not driver.run(checkpoints.save("s", Checkpoint("11", "another", 1)))
    assert driver.run(checkpoints.read("s")) == Checkpoint("10", "me", 1)
    assert driver.run(checkpoints.read("other")) == Checkpoint()
    assert driver.run(store.has_reader())
