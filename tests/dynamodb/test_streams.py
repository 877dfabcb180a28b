"""The stream of a table and the checkpoints of its readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.support.dynamodb import Runner
from zae_limiter.backends.dynamodb.checkpoints import (
    DynamoCheckpoints,
    has_checkpoints,
    works_with_checkpoints,
)
from zae_limiter.backends.dynamodb.pages import Query, read_pages
from zae_limiter.backends.dynamodb.schema import key, pk_stream
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.streams import DynamoStream, open_stream
from zae_limiter.backends.dynamodb.table import Table
from zae_limiter.backends.dynamodb.wire.client import DynamoClient
from zae_limiter.backends.dynamodb.wire.errors import ErrorAnswer, exception_of
from zae_limiter.backends.dynamodb.wire.values import Item
from zae_limiter.core.exceptions import InfrastructureNotFoundError, ValidationError
from zae_limiter.ports.stream import Checkpoint, IteratorExpired
from zae_limiter.runtime.blocking import BlockingIo, run

MADE_S = 1_704_067_200.0
TABLE = {
    "Table": {
        "CreationDateTime": MADE_S,
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }
}


class ScriptedClient:
    """A client whose calls are answered by a script, in order."""

    def __init__(self, *script: dict[str, Any] | str) -> None:
        self.io = BlockingIo()
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
    table = Table(cast(DynamoClient, client), "t")
    return DynamoStream(table, table.client), client


def listed(*labels: str) -> dict[str, Any]:
    return {"Streams": [{"StreamArn": arn(label)} for label in labels]}


def arn(label: str) -> str:
    return f"arn:aws:dynamodb:us-east-1:1:table/t/stream/{label}"


def described(*shards: str, view: str = "NEW_AND_OLD_IMAGES", **more: Any) -> dict[str, Any]:
    """A stream whose shards are each the parent of the next."""
    family = zip(shards, (None, *shards), strict=False)
    found = [{"ShardId": s, **({"ParentShardId": p} if p else {})} for s, p in family]
    return {"StreamDescription": {"Shards": found, "StreamViewType": view, **more}}


def shards_of(stream: DynamoStream) -> dict[str, set[str]]:
    return {shard_id: set(after) for shard_id, after, _ in run(stream.shards())}


@pytest.mark.parametrize("code", ["TrimmedDataAccessException", "ValidationException"])
def test_a_position_that_the_stream_does_not_know_begins_at_the_oldest_record(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream, client = scripted(
        *(TABLE, listed("l1"), described("a")),
        *(code, {"ShardIterator": "oldest"}),
    )
    run(stream.shards())
    assert run(stream.begin("l1#a", "17")) == "oldest"
    kinds = [request["ShardIteratorType"] for request in client.sent[3:]]
    assert kinds == ["AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON"]
    assert client.sent[3]["StreamArn"] == arn("l1")
    assert "l1#a is read from its oldest record on" in caplog.text


def test_a_shard_that_is_kept_no_more_has_no_iterator() -> None:
    stream, _ = scripted(TABLE, listed("l1"), described("a"), "ResourceNotFoundException")
    run(stream.shards())
    assert run(stream.begin("l1#a", None)) is None


@pytest.mark.parametrize(
    "code",
    ["ExpiredIteratorException", "TrimmedDataAccessException", "ResourceNotFoundException"],
)
def test_an_iterator_that_can_be_used_no_more_is_told_apart(code: str) -> None:
    stream, _ = scripted(code)
    with pytest.raises(IteratorExpired):
        run(stream.read("l1#a", "old"))


def test_a_page_that_was_trimmed_is_followed_by_the_oldest_record() -> None:
    stream, client = scripted(
        *(TABLE, listed("l1"), described("a")),
        *("TrimmedDataAccessException", {"ShardIterator": "oldest"}),
    )
    run(stream.shards())
    with pytest.raises(IteratorExpired):
        run(stream.read("l1#a", "old"))
    assert run(stream.begin("l1#a", "17")) == "oldest"
    assert client.sent[-1]["ShardIteratorType"] == "TRIM_HORIZON"


def test_a_page_is_placed_by_its_last_record_that_can_be_read() -> None:
    change = {"SequenceNumber": "7", "ApproximateCreationDateTime": 1.5}
    records = [{"dynamodb": change}, None, {}, {"dynamodb": {"SequenceNumber": "9"}}]
    stream, _ = scripted({"Records": records, "NextShardIterator": "next"}, {"Records": [None]})
    page = run(stream.read("l1#a", "first"))
    assert (page.records, page.last_id, page.last_ms) == (4, "7", 1500)
    assert run(stream.read("l1#a", "next"))[1:4] == (1, None, None)


@pytest.mark.parametrize(
    ("records", "is_full"), [(999, False), (1000, True), (440, True), (3, False)]
)
def test_a_page_is_full_at_a_thousand_records_or_most_of_a_megabyte(
    records: int, is_full: bool
) -> None:
    size = {"SizeBytes": 1200} if records == 440 else {}
    found = [None, *({"dynamodb": size} for _ in range(records - 1))]
    stream, _ = scripted({"Records": found, "NextShardIterator": "next"})
    assert run(stream.read("l1#a", "first")).is_full == is_full


def test_the_last_record_of_a_shard_that_has_ended_is_told() -> None:
    answer = described("a")
    answer["StreamDescription"]["Shards"][0]["SequenceNumberRange"] = {"EndingSequenceNumber": "9"}
    stream, _ = scripted(TABLE, listed("l1"), answer)
    assert run(stream.shards()) == [("l1#a", frozenset(), "9")]


def test_shards_are_listed_page_by_page() -> None:
    first = described("a", LastEvaluatedShardId="a")
    second = {"Shards": [{"ShardId": "b", "ParentShardId": "a"}]}
    second["StreamViewType"] = "NEW_AND_OLD_IMAGES"  # type: ignore[assignment]
    stream, client = scripted(TABLE, listed("l1"), first, {"StreamDescription": second})
    assert shards_of(stream) == {"l1#a": set(), "l1#b": {"l1#a"}}
    assert client.sent[3]["ExclusiveStartShardId"] == "a"


def test_streams_are_listed_page_by_page() -> None:
    stream, client = scripted(
        *(TABLE, {**listed("l1"), "LastEvaluatedStreamArn": arn("l1")}, listed("l2")),
        *(described("a"), described("b")),
    )
    assert shards_of(stream).keys() == {"l1#a", "l2#b"}
    assert client.sent[2]["ExclusiveStartStreamArn"] == arn("l1")


def test_a_stream_of_a_later_label_is_read_after_all_shards_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream, _ = scripted(
        *(TABLE, listed("l1"), described("a", "b")),
        *(TABLE, listed("l2", "l1"), described("a", "b"), described("c", "d")),
    )
    run(stream.shards())
    assert not caplog.text
    assert shards_of(stream) == {
        "l1#a": set(),
        "l1#b": {"l1#a"},
        "l2#c": {"l1#a", "l1#b"},
        "l2#d": {"l1#a", "l1#b", "l2#c"},
    }
    assert "Table t has a new stream: l2" in caplog.text


def test_a_stream_that_is_kept_no_more_has_no_shards() -> None:
    stream, _ = scripted(TABLE, listed("l1", "l2"), "ResourceNotFoundException", described("b"))
    assert shards_of(stream) == {"l2#b": set()}


def test_a_stream_of_a_deleted_table_of_that_name_has_no_shards() -> None:
    foreign = described("a", CreationRequestDateTime=MADE_S - 60)
    own = described("b", CreationRequestDateTime=MADE_S - 0.01)
    stream, _ = scripted(TABLE, listed("l1", "l2"), foreign, own)
    assert shards_of(stream) == {"l2#b": set()}


def test_a_stream_that_lacks_images_has_no_shards_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    poor = {"Table": {**TABLE["Table"], "StreamSpecification": {"StreamViewType": "KEYS_ONLY"}}}
    stream, _ = scripted(poor, listed("l1"), described("a", view="KEYS_ONLY"))
    assert shards_of(stream) == {}
    assert "no stream with both images: KEYS_ONLY" in caplog.text


def test_a_stream_that_is_switched_off_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    off = {"Table": {"CreationDateTime": MADE_S}}
    stream, _ = scripted(*(off, listed("l1"), described("a")) * 2)
    run(stream.shards())
    run(stream.shards())
    assert caplog.text.count("no stream with both images: None") == 1


def test_a_table_that_is_gone_is_an_error_of_infrastructure() -> None:
    stream, _ = scripted("ResourceNotFoundException")
    with pytest.raises(InfrastructureNotFoundError):
        run(stream.shards())


def test_a_table_whose_stream_lacks_images_is_refused() -> None:
    answer = {"Table": {"StreamSpecification": {"StreamViewType": "KEYS_ONLY"}}}
    table = Table(cast(DynamoClient, ScriptedClient(answer)), "t")
    with pytest.raises(ValidationError, match="NEW_AND_OLD_IMAGES"):
        run(open_stream(table, blocking=True))


def test_a_lease_is_kept_from_others_until_it_ends(driver: Runner, store: DynamoStore) -> None:
    checkpoints = DynamoCheckpoints(store.table, "work")
    now_ms = driver.io.now_ms()
    mine = driver.run(checkpoints.lease("s", "me", now_ms + 60_000))
    assert mine == Checkpoint(None, "me", now_ms + 60_000)
    assert driver.run(checkpoints.lease("s", "another", now_ms + 90_000)) == mine
    assert driver.run(checkpoints.lease("s", "me", now_ms + 90_000)).lease_ends_ms > now_ms + 60_000
    assert driver.run(checkpoints.save("s", Checkpoint("007", "me", 0)))
    taken = driver.run(checkpoints.lease("s", "another", now_ms + 90_000))
    assert taken == Checkpoint("007", "another", now_ms + 90_000)
    assert driver.run(checkpoints.read("s")) == taken


def test_a_checkpoint_is_its_owners_alone_and_goes_back_if_the_owner_does(
    driver: Runner, store: DynamoStore
) -> None:
    checkpoints = DynamoCheckpoints(store.table, "work")
    assert not driver.run(has_checkpoints(store.table))
    assert not driver.run(store.has_reader())
    driver.run(checkpoints.lease("s", "me", driver.io.now_ms() + 60_000))
    for number in ("9", "9" * 40, "10"):
        saved = driver.run(checkpoints.save("s", Checkpoint(number, "me", 1)))
        assert saved == Checkpoint(number, "me", 1)
    assert not driver.run(checkpoints.save("s", Checkpoint("11", "another", 1)))
    assert driver.run(checkpoints.read("s")) == Checkpoint("10", "me", 1)
    assert driver.run(checkpoints.read("other")) == Checkpoint()
    assert driver.run(store.has_reader())


def test_records_of_others_beside_the_checkpoints_are_no_checkpoints(
    driver: Runner, store: DynamoStore
) -> None:
    for sort_key in ("x", "#", "#SHARD", "#SHARDS#a"):
        driver.run(store.table.put(key(pk_stream(), sort_key)))
    assert not driver.run(has_checkpoints(store.table))
    for sort_key in ("#SHARD#", "#SHARD#work", "#SHARD##label#shard"):
        driver.run(store.table.put(key(pk_stream(), sort_key)))
    assert driver.run(works_with_checkpoints(store.table)) == []
    driver.run(DynamoCheckpoints(store.table, "work").lease("label#shard", "me", 1))
    assert driver.run(works_with_checkpoints(store.table)) == ["work"]
    assert driver.run(has_checkpoints(store.table))


def test_an_owner_learns_who_asks_for_its_shard(driver: Runner, store: DynamoStore) -> None:
    checkpoints = DynamoCheckpoints(store.table, "work")
    until_ms = driver.io.now_ms() + 60_000
    for shard_id in ("a", "b"):
        driver.run(checkpoints.lease(shard_id, "me", until_ms))
    driver.run(checkpoints.ask("a", "somebody", "new"))
    assert driver.run(checkpoints.read("a")).wanted_by == ""
    driver.run(checkpoints.ask("a", "me", "new"))
    driver.run(checkpoints.ask("a", "me", "late"))
    told = driver.run(checkpoints.save("a", Checkpoint("7", "me", until_ms)))
    assert told == Checkpoint("7", "me", until_ms, "new")
    assert driver.run(checkpoints.read_all()) == {"a": told, "b": Checkpoint(None, "me", until_ms)}
    driver.run(checkpoints.save("a", Checkpoint("7", "me", 0)))
    taken = driver.run(checkpoints.lease("a", "new", until_ms))
    assert taken == Checkpoint("7", "new", until_ms)


@pytest.mark.parametrize(
    "damage",
    [
        {"record_id": {"S": "abc"}},
        {"record_id": {"S": ""}},
        {"record_id": {"S": "²"}},
        {"record_id": {"S": "-5"}},
        {"record_id": {"S": "7" * 5000}},
        {"record_id": {"N": "7"}},
        {"owner": {"N": "1"}},
        {"lease_ends_ms": {"S": "soon"}},
        {"lease_ends_ms": {"N": "0.5"}},
        {"owner": {"S": "another"}, "lease_ends_ms": {"N": "99999999999999999999"}},
    ],
)
def test_a_damaged_checkpoint_counts_as_none_and_is_dropped(
    damage: Item, driver: Runner, store: DynamoStore, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = DynamoCheckpoints(store.table, "work")
    until_ms = driver.io.now_ms() + 30_000
    for is_read in (True, False):
        driver.run(checkpoints.lease("s", "me", until_ms))
        assert driver.run(checkpoints.save("s", Checkpoint("7", "me", 0)))
        (item,) = driver.run(read_pages(store.table, Query(pk_stream())))
        driver.run(store.table.put({**item, **damage}))
        if is_read:
            assert driver.run(checkpoints.read("s")) == Checkpoint()
            assert "read again from its oldest record" in caplog.text
        driver.run(checkpoints.lease("s", "me", until_ms))
        assert driver.run(checkpoints.lease("s", "me", until_ms)).owner == "me"
        assert driver.run(checkpoints.save("s", Checkpoint("7", "me", 0)))
