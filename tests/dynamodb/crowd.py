"""Processes that share a bucket, and what the bucket says of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.tables import OwnTable
from zae_limiter import SyncRepository
from zae_limiter.backends.dynamodb.bucket_codec import address_of, decode_bucket
from zae_limiter.core.composite import Bucket, BucketAddress
from zae_limiter.core.limit import MILLI
from zae_limiter.core.naming import WCU

from .books import ACQUIRES, Account, read_books
from .client import ENTITY, RESOURCE, Task

ROOT = Path(__file__).parents[2]
NAMESPACE = "crowd"
_PATIENCE_S = 60


@dataclass
class Crowd:
    """Processes on one table, half of them blocking. They begin when all are there."""

    table: OwnTable
    folder: Path
    repository: SyncRepository
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _longest_s: float = 0

    @property
    def home(self) -> BucketAddress:
        return BucketAddress(self.repository.namespace_id, ENTITY, RESOURCE)

    def start(self, seconds: float, url: str | None = None, **options: Any) -> None:
        """One more process, by the other driver than the one before."""
        self._longest_s = max(self._longest_s, seconds)
        number = len(self.processes)
        is_blocking = number % 2 == 1
        task = Task(
            url or self.table.url,
            NAMESPACE,
            str(self._book(number)),
            str(self._gate),
            driver="blocking" if is_blocking else "asyncio",
            workers=1 if is_blocking else 3,
            seed=number,
            seconds=seconds,
            **options,
        )
        command = [sys.executable, "-m", "tests.dynamodb.client", json.dumps(asdict(task))]
        self.processes.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE))

    def wait_until_ready(self) -> None:
        """Until all have come up."""
        deadline = time.monotonic() + _PATIENCE_S
        while not all(self._is_ready(number) for number in range(len(self.processes))):
            assert time.monotonic() < deadline, "some process does not come up"
            time.sleep(0.01)

    def open_gate(self) -> None:
        """Let all begin, once all are ready."""
        self.wait_until_ready()
        self._gate.touch()

    def kill(self, number: int) -> None:
        """Without a word of warning."""
        self.processes[number].send_signal(signal.SIGKILL)

    def join(self) -> Account:
        """Wait until all have ended, and read what they say."""
        if not self._gate.exists():
            self.open_gate()
        for process in self.processes:
            _, said = process.communicate(timeout=self._longest_s + _PATIENCE_S)
            assert process.returncode in (0, -signal.SIGKILL), said.decode()
        return read_books(map(self._book, range(len(self.processes))))

    def close(self) -> None:
        """End whoever is left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.repository.close()

    def items(self) -> dict[BucketAddress, Bucket]:
        """The bucket as it is stored."""
        stored = [item for item in self.table.items() if "rf" in item]
        addressed = [(address_of(item["PK"]["S"]), item) for item in stored]
        return {address: decode_bucket(address, item) for address, item in addressed}

    def consumed(self) -> Counter[str]:
        """What the items together say was charged, in whole tokens."""
        items = self.items().values()
        total = Counter({ACQUIRES: sum(bucket.acquires for bucket in items)})
        for bucket in items:
            for name, cell in bucket.cells.items():
                total[name] += cell.consumed_milli
        del total[WCU]
        for name in total.keys() - {ACQUIRES}:
            assert total[name] % MILLI == 0, f"{name}: {total[name]}"
            total[name] //= MILLI
        return total

    def held_milli(self, name: str) -> int:
        """What all items together hold."""
        return sum(bucket.cells[name].tokens_milli for bucket in self.items().values())

    @property
    def _gate(self) -> Path:
        return self.folder / "gate"

    def _book(self, number: int) -> Path:
        return self.folder / f"{number}.book"

    def _is_ready(self, number: int) -> bool:
        process, book = self.processes[number], self._book(number)
        if process.poll() is not None:
            _, said = process.communicate()
            raise AssertionError(said.decode())
        return book.exists() and "ready" in book.read_text(encoding="utf-8")
