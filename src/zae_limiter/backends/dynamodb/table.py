"""Calls on the items of the table.

A call that may be carried out twice without harm is sent again when its answer is lost: a read, a
batch deletion, or a transaction, which carries an idempotency token. Whether another write is sent
again is its caller's decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...core.exceptions import StorageUnavailable
from ...ports.io import Io
from ...ports.repository_protocol import StoreClosed
from .expressions import Term, request_fields
from .wire.client import DynamoClient
from .wire.retry import Backoff, delays
from .wire.values import Item

T = TypeVar("T")
Key = dict[str, Any]
Action = dict[str, Any]
"""An action of a transaction, as `TransactWriteItems` takes it."""

_GETS_PER_BATCH = 100
_DELETES_PER_BATCH = 25
# A call that hung for long is not sent again: its caller has waited enough.
_RESENDING = Backoff(retries=2, base_s=0.05, ceiling_s=0.2, total_s=0.5, deadline_s=1.0)
_UNPROCESSED = Backoff(retries=10, base_s=0.05, ceiling_s=1.0, total_s=5.0)


async def repeat(io: Io, call: Callable[[], Awaitable[T]]) -> T:
    """Make a call that does no harm when it is carried out twice, again if its answer is lost."""
    waits_s = delays(_RESENDING, io.entropy)
    deadline_ms = io.now_ms() + 1000 * _RESENDING.deadline_s
    lost: StorageUnavailable | None = None
    while True:
        try:
            return await call()
        except StoreClosed as closed:
            # The call that was sent before the store was closed may still be carried out.
            raise lost or closed from None
        except StorageUnavailable as error:
            lost = error
            wait_s = next(waits_s, None)
            is_late = io.now_ms() >= deadline_ms or (wait_s or 0) >= io.left_s()
            if not error.ambiguous or wait_s is None or is_late:
                raise
        await io.pause(wait_s)


@dataclass(slots=True, eq=False)
class Table:
    """A table and the client it is reached through.

    `measured`: ask DynamoDB what each call cost, indexes included, and count it in the
    client's meter. Off by default, because answers become longer.
    """

    client: DynamoClient
    name: str
    measured: bool = False

    @property
    def io(self) -> Io:
        """The driver."""
        return self.client.io

    def call(
        self, operation: str, parameters: Mapping[str, Any]
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Carry out any operation on items."""
        if self.measured:
            parameters = {**parameters, "ReturnConsumedCapacity": "INDEXES"}
        return self.client.call_table(self.name, operation, parameters)

    async def repeatable(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an operation that does no harm when it is carried out twice."""
        flow = repeat(self.io, lambda: self.call(operation, parameters))
        return await self.client.in_time(flow)

    async def get(self, key: Key, *, consistent: bool = False) -> Item | None:
        """Return the item, if there is one."""
        request = {"TableName": self.name, "Key": key, "ConsistentRead": consistent}
        return (await self.repeatable("GetItem", request)).get("Item")

    async def put(self, item: Item, terms: Iterable[Term] = ()) -> None:
        """Replace the item, if the terms hold."""
        await self.call("PutItem", self._request(terms, Item=item))

    async def update(self, key: Key, terms: Iterable[Term]) -> None:
        """Change the item as the terms say."""
        await self.call("UpdateItem", self._request(terms, Key=key))

    async def delete(self, key: Key, terms: Iterable[Term] = ()) -> None:
        """Delete the item, if the terms hold."""
        await self.call("DeleteItem", self._request(terms, Key=key))

    def _request(self, terms: Iterable[Term], **place: Item) -> dict[str, Any]:
        return {"TableName": self.name, **place, **request_fields(terms)}

    async def transact(self, actions: Sequence[Action], token: str | None = None) -> None:
        """Carry out all actions or none, once, however often the transaction is sent."""
        token = token or self.io.operation_id()
        request = {"TransactItems": actions, "ClientRequestToken": token}
        await self.repeatable("TransactWriteItems", request)

    def putting(self, item: Item, terms: Iterable[Term] = ()) -> Action:
        """Replace the item, as an action of a transaction."""
        return {"Put": self._request(terms, Item=item)}

    def updating(self, key: Key, terms: Iterable[Term]) -> Action:
        """Change the item, as an action of a transaction."""
        return {"Update": self._request(terms, Key=key)}

    def deleting(self, key: Key, terms: Iterable[Term] = ()) -> Action:
        """Delete the item, as an action of a transaction."""
        return {"Delete": self._request(terms, Key=key)}

    def checking(self, key: Key, terms: Iterable[Term]) -> Action:
        """Check the item, as an action of a transaction."""
        return {"ConditionCheck": self._request(terms, Key=key)}

    async def batch_get(self, keys: Iterable[Key], *, consistent: bool = False) -> list[Item]:
        """Return the items that exist, in any order, for any number of keys."""
        found: list[Item] = []
        for chunk in _chunks(_distinct(keys), _GETS_PER_BATCH):
            request = {self.name: {"Keys": chunk, "ConsistentRead": consistent}}
            for answer in await self._in_full("BatchGetItem", request, "UnprocessedKeys"):
                found += answer["Responses"].get(self.name, ())
        return found

    async def batch_delete(self, keys: Iterable[Key]) -> int:
        """Delete the items, and count the keys. A failure may leave part of them deleted."""
        doomed = _distinct(keys)
        for chunk in _chunks(doomed, _DELETES_PER_BATCH):
            request = {self.name: [{"DeleteRequest": {"Key": key}} for key in chunk]}
            await self._in_full("BatchWriteItem", request, "UnprocessedItems")
        return len(doomed)

    async def _in_full(
        self, operation: str, request: Mapping[str, Any], unprocessed: str
    ) -> list[dict[str, Any]]:
        """Send what was left unprocessed again, with backoff, until nothing is."""
        waits_s = delays(_UNPROCESSED, self.io.entropy)
        answers: list[dict[str, Any]] = []
        while True:
            answers.append(await self.repeatable(operation, {"RequestItems": request}))
            request = answers[-1].get(unprocessed, {})
            if not request:
                return answers
            wait_s = next(waits_s, None)
            if wait_s is None or wait_s >= self.io.left_s():
                raise StorageUnavailable(
                    f"DynamoDB is too busy: {operation} was never done in full", ambiguous=True
                )
            await self.io.pause(wait_s)


def key_of(item: Item) -> Key:
    """Return the key of an item."""
    return {"PK": item["PK"], "SK": item["SK"]}


def key_text(keyed: Item) -> tuple[str, str]:
    """Return the key of an item as plain text, which can be compared."""
    return keyed["PK"]["S"], keyed["SK"]["S"]


def _distinct(keys: Iterable[Key]) -> list[Key]:
    """Drop repeated keys: DynamoDB refuses a batch that names a key twice."""
    return list({key_text(key): key for key in keys}.values())


def _chunks(members: list[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(members), size):
        yield members[start : start + size]
