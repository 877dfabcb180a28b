"""Processes that share a bucket, and what the bucket says of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support.books import ACQUIRES, Account, read_books, read_notes
from tests.support.servers.tables import OwnTable
from tests.support.table_client import ENTITY, RESOURCE, Task
from zae_limiter import SyncRepository
from zae_limiter.backends.dynamodb.bucket_codec import address_of, decode_bucket_item
from zae_limiter.core.bucket import Bucket, BucketAddress
from zae_limiter.core.limit import MILLI
from zae_limiter.core.validation import WCU

ROOT = Path(__file__).parents[2]
NAMESPACE = "crowd"
# `make soak` asks for more.
SOAK_S = float(os.environ.get("ZAEL_SOAK_SECONDS", "0"))
_PATIENCE_S = 240
_GLANCE_S = 0.1


@dataclass
class Crowd:
    """Processes on one table, half of them blocking. They begin when all are there."""

    table: OwnTable
    folder: Path
    repository: SyncRepository
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def home(self) -> BucketAddress:
        return BucketAddress(self.repository.namespace_id, ENTITY, RESOURCE)

    def start(self, url: str | None = None, **options: Any) -> None:
        """One more process, by the other driver than the one before."""
        number = len(self.processes)
        is_blocking = number % 2 == 1
        task = Task(
            url or self.table.url,
            NAMESPACE,
            str(self._book(number)),
            str(self._gate),
            str(self._end),
            driver="blocking" if is_blocking else "asyncio",
            workers=1 if is_blocking else 3,
            seed=number,
            **options,
        )
        command = [sys.executable, "-m", "tests.support.table_client", json.dumps(asdict(task))]
        self.processes.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE))

    def wait_until_ready(self) -> None:
        """Until all have come up."""
        numbers = range(len(self.processes))
        self._wait(lambda: all(self.notes(number)["ready"] for number in numbers))

    def open_gate(self) -> None:
        """Let all begin, once all are ready."""
        self.wait_until_ready()
        self._gate.touch()

    def notes(self, number: int) -> Counter[str]:
        """What one of them has counted so far."""
        return read_notes(self._book(number)) if self._book(number).exists() else Counter()

    def wait_for(self, least: Mapping[str, int], numbers: Iterable[int] | None = None) -> None:
        """Until all of them together, or those with these numbers, have seen so much happen."""
        chosen = list(range(len(self.processes)) if numbers is None else numbers)

        def missing() -> dict[str, int]:
            seen = sum((self.notes(number) for number in chosen), Counter[str]())
            return {what: seen[what] for what in least if seen[what] < least[what]}

        self._wait(lambda: not missing(), missing)

    def _wait(self, is_over: Callable[[], bool], missing: Callable[[], object] = str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not is_over():
            assert time.monotonic() < deadline, f"it does not come to that: {missing()}"
            for process in self.processes:
                if process.poll() not in (None, -signal.SIGKILL):
                    raise AssertionError(process.communicate()[1].decode())
            time.sleep(_GLANCE_S)

    def kill(self, number: int) -> None:
        """Without a word of warning."""
        self.processes[number].send_signal(signal.SIGKILL)

    def join(self) -> Account:
        """Have all end, wait until they have, and read what they say."""
        self._end.touch()
        for process in self.processes:
            _, said = process.communicate(timeout=_PATIENCE_S)
            assert process.returncode in (0, -signal.SIGKILL), said.decode()
        return read_books(map(self._book, range(len(self.processes))))

    def run(self, is_over: Callable[[], bool] = lambda: True, **least: int) -> Account:
        """Let all begin, and end when so much has happened and it is over, and not before `make
        soak` says."""
        self.open_gate()
        began = time.monotonic()
        self.wait_for({what.replace("_", " "): count for what, count in least.items()})
        self._wait(is_over)
        time.sleep(max(0, began + SOAK_S - time.monotonic()))
        return self.join()

    def is_split(self) -> bool:
        """Whether there are several items, of which some were split again."""
        return len(self.items()) >= 4

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
        return {address: decode_bucket_item(address, item) for address, item in addressed}

    def consumed(self) -> dict[str, float]:
        """What the items together say was charged, in tokens. Parts of one are left where a
        process was killed between two items."""
        items = self.items().values()
        total: dict[str, float] = {ACQUIRES: sum(bucket.acquires for bucket in items)}
        for bucket in items:
            for name, cell in bucket.cells.items():
                if name != WCU:
                    total[name] = total.get(name, 0) + cell.consumed_milli
        return {name: n if name == ACQUIRES else n / MILLI for name, n in total.items()}

    def held_milli(self, name: str) -> int:
        """What all items together hold."""
        return sum(bucket.cells[name].tokens_milli for bucket in self.items().values())

    @property
    def _gate(self) -> Path:
        return self.folder / "gate"

    @property
    def _end(self) -> Path:
        return self.folder / "end"

    def _book(self, number: int) -> Path:
        return self.folder / f"{number}.book"
