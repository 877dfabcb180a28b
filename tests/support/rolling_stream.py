"""A stream whose shards end and go on in children, as those of DynamoDB do every few hours.

AWS's own local server follows shards from parent to child, but makes a child only after hours. It
keeps the list of shards in a file of SQLite, in which a shard can be ended earlier.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import boto3

from tests.support.servers.tables import OwnTable

_PATIENCE_S = 30


def end_shard(table: OwnTable, folder: Path) -> None:
    """End the open shard of the table's stream, and let it go on in a child. Nobody must be writing
    to the table."""
    now_ms = round(time.time() * 1000)
    with closing(_open(folder)) as database:
        database.execute("BEGIN IMMEDIATE")
        stream, parent = database.execute(
            "SELECT StreamID, ShardID FROM ss WHERE StreamID LIKE ? AND DeletionDateTime IS NULL",
            [f"%/{table.name}/%"],
        ).fetchone()
        (last,) = database.execute(
            "SELECT max(SequenceNumber) FROM us WHERE StreamID = ?", [stream]
        ).fetchone()
        database.execute(
            "UPDATE ss SET DeletionDateTime = ?, SequenceNumberEnd = ? WHERE ShardID = ?",
            [now_ms, last, parent],
        )
        child = f"shardId-{now_ms:020}-{now_ms % 2**32:08x}"
        database.execute(
            "INSERT INTO ss (StreamID, ShardID, CreationDateTime, InitialSequenceNumberStart,"
            " ParentShardID) VALUES (?, ?, ?, ?, ?)",
            [stream, child, now_ms, last + 1, parent],
        )
        database.execute("COMMIT")


def _open(folder: Path) -> sqlite3.Connection:
    (file,) = folder.glob("*.db")
    return sqlite3.connect(file, timeout=_PATIENCE_S, isolation_level=None)


def generations(table: OwnTable) -> int:
    """How many shards of the table's stream follow each other, as the server tells it."""
    server = table.server
    client = boto3.client("dynamodbstreams", endpoint_url=server.url, region_name=server.region)
    (stream,) = client.list_streams(TableName=table.name)["Streams"]
    described = client.describe_stream(StreamArn=stream["StreamArn"])["StreamDescription"]
    parents = {shard["ShardId"]: shard.get("ParentShardId") for shard in described["Shards"]}
    (newest,) = parents.keys() - parents.values()
    length = 0
    while newest is not None:
        newest, length = parents[newest], length + 1
    return length
