"""No limiter: `UpdateItem`s like those of an acquire, as fast as the server answers them."""

from __future__ import annotations

from typing import Any

from zae_limiter.backends.dynamodb.schema import key, pk_bucket, sk_state
from zae_limiter.backends.dynamodb.wire.connect import open_client
from zae_limiter.backends.dynamodb.wire.values import to_attribute
from zae_limiter.runtime.asyncio_driver import AsyncioIo

from .dynamodb import REGION, RESOURCE, Async, takes
from .worker.job import Job
from .worker.several import AsyncAdapter


class Bare(AsyncAdapter):
    """Signed requests of our wire to the buckets of one table. Nothing is looked at."""

    async def open(self, job: Job) -> None:
        namespace_id = await _make_buckets(job)
        self._client = open_client(
            AsyncioIo(), blocking=False, region=REGION, endpoint_url=job.server, transport="wire"
        )
        self._updates = {
            entity: _update(job, pk_bucket(namespace_id, entity, RESOURCE, 0))
            for entity in _entities(job)
        }

    async def take(self, entity: str) -> bool:
        await self._client.call("UpdateItem", self._updates[entity])
        return True

    async def shut(self) -> None:
        await self._client.close()


class _Maker(Async):
    """Makes the buckets as they are in use. Runs in the loop of whoever asks."""

    def __init__(self) -> None:
        """Nothing is opened yet."""


def _entities(job: Job) -> list[str]:
    return [f"entity-{number}" for number in range(job.entities)]


async def _make_buckets(job: Job) -> str:
    """The id of their namespace."""
    maker = _Maker()
    await maker.open(job)
    for entity in _entities(job):
        await maker.take(entity)
    namespace_id: str = maker.repository.namespace_id
    await maker.shut()
    return namespace_id


def _update(job: Job, pk: str) -> dict[str, Any]:
    """Take from every limit what an acquire takes, if it is there."""
    names, values = {"#ac": "ac"}, {":ac": to_attribute(1)}
    adds, conditions = ["#ac :ac"], []
    for n, (name, amount) in enumerate({**takes(job), "wcu": 1}.items()):
        names |= {f"#{n}": f"b_{name}_tk", f"#c{n}": f"b_{name}_tc"}
        values |= {f":{n}": to_attribute(-1000 * amount), f":c{n}": to_attribute(1000 * amount)}
        adds += [f"#{n} :{n}", f"#c{n} :c{n}"]
        if name != "wcu":
            conditions.append(f"#{n} >= :c{n}")
    return {
        "TableName": job.place,
        "Key": key(pk, sk_state()),
        "UpdateExpression": f"ADD {', '.join(adds)}",
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
