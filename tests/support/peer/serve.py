"""A client of the existing package, told what to do line by line.

Runs in an environment of its own, where `zae_limiter` is that package:

    python serve.py ENDPOINT_URL REGION TABLE

Each line of input is a JSON list: what to call, positional and named arguments. Each line of
output is `{"result": ...}` or `{"error": [type, message]}`. Limits are written as
`{"limit": [name, capacity, refill_amount, refill_period_seconds]}`, in both directions.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import sys
import warnings
from typing import Any

import zae_limiter

package: Any = zae_limiter


class BodyFailed(Exception):
    """What the body of a lease raises when it is told to."""


class Client:
    """Everything that can be called."""

    def __init__(self, url: str, region: str, table: str) -> None:
        self._at = {"stack": table, "region": region, "endpoint_url": url, "config_cache_ttl": 0}
        self._table = {"name": table, "region": region, "endpoint_url": url}
        self._open: dict[str, Any] = {}

    async def create_table(self) -> None:
        maker = package.Repository(**self._table)
        await maker.create_table()
        await maker.close()

    async def repository(
        self, method: str, *args: Any, namespace: str = "default", **named: Any
    ) -> Any:
        found = getattr(await self._repository(namespace), method)(*args, **named)
        return await found if asyncio.iscoroutine(found) else found

    async def limiter(
        self, method: str, *args: Any, namespace: str = "default", **named: Any
    ) -> Any:
        limiter = package.RateLimiter(repository=await self._repository(namespace))
        return await getattr(limiter, method)(*args, **named)

    async def _repository(self, namespace: str) -> Any:
        if namespace not in self._open:
            self._open[namespace] = await package.Repository.open(
                namespace, **self._at, rejection_cache_ttl=0
            )
        return self._open[namespace]

    async def acquire(
        self,
        entity_id: str,
        resource: str,
        consume: dict[str, int],
        *,
        adjust: dict[str, int] | None = None,
        fails: bool = False,
        namespace: str = "default",
        speculative: bool = True,
    ) -> bool:
        """Whether it was admitted."""
        limiter = package.RateLimiter(
            repository=await self._repository(namespace), speculative_writes=speculative
        )
        try:
            async with limiter.acquire(entity_id, resource, consume) as lease:
                if adjust:
                    await lease.adjust(**adjust)
                if fails:
                    raise BodyFailed
        except package.RateLimitExceeded:
            return False
        except BodyFailed:
            return True
        return True

    async def unopened(self, method: str, *args: Any) -> Any:
        """Call a limiter that is made by the name of its stack."""
        async with package.RateLimiter(**self._table) as limiter:
            return await getattr(limiter, method)(*args)

    async def opened_by(self, way: str) -> None:
        """Open the table once more: `open` or `connect`."""
        await (await getattr(package.Repository, way)(**self._at)).close()

    async def acquire_often(
        self, entity_id: str, resource: str, consume: dict[str, int], times: int, at_once: int
    ) -> int:
        """How many were admitted."""
        left = [times]

        async def work() -> int:
            admitted = 0
            while left[0]:
                left[0] -= 1
                admitted += await self.acquire(entity_id, resource, consume)
            return admitted

        return sum(await asyncio.gather(*(work() for _ in range(at_once))))

    async def close(self) -> None:
        for repository in self._open.values():
            await repository.close()


def plain(value: Any) -> Any:
    """As JSON can say it."""
    if isinstance(value, package.Limit):
        fields = (value.name, value.capacity, value.refill_amount, value.refill_period_seconds)
        return {"limit": fields}
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value


def rich(value: Any) -> Any:
    """The package's own values."""
    if isinstance(value, dict) and value.keys() == {"limit"}:
        return package.Limit(*value["limit"])
    if isinstance(value, dict):
        return {key: rich(each) for key, each in value.items()}
    return [rich(each) for each in value] if isinstance(value, list) else value


async def serve(client: Client) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, args, named = rich(json.loads(line))
        try:
            answer = {"result": plain(await getattr(client, name)(*args, **named))}
        except Exception as error:
            answer = {"error": [type(error).__name__, str(error)]}
        print(json.dumps(answer), flush=True)
    await client.close()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asyncio.run(serve(Client(*sys.argv[1:])))
