"""This module starts the worker processes together, reads their logs, and always ends them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Self

from .record import Record
from .scenario import Job

_START_S = 60.0
_STOP_S = 5.0


class WorkerDied(Exception):
    """This error says that a worker ended before it was told to."""


class _Worker:
    """A worker is one process, and the thread that reads its log."""

    def __init__(self, job: Job, record: Record, lock: threading.Lock) -> None:
        self.number = job.worker
        self.ready = threading.Event()
        self._overdue = False
        self._unreadable = ""
        self._record = record
        self._lock = lock
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        # Without a session of its own, a Ctrl-C in the terminal would kill the worker in the middle
        # of a call. So the worker ends when its input ends.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "zae_limiter.cli.demo.worker", job.to_text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A killed process may leave half a line behind, which would be reported as unreadable.
            if not line.endswith("\n"):
                break
            try:
                with self._lock:
                    self._record.add(self.number, line)
            except (KeyError, ValueError):
                self._unreadable = line.strip()
            self.ready.set()

    def start(self) -> None:
        """Let the worker begin."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def tell_to_stop(self) -> None:
        """End the worker's input; the worker finishes the calls that it has begun."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self, deadline: float) -> None:
        """Wait until the worker has ended; kill it if that takes too long."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._overdue = True
            self._process.kill()
            self._process.wait()
        self._listener.join()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def failure(self) -> str | None:
        """Return how the worker failed, if it did."""
        if self._unreadable:
            return f"worker {self.number} wrote what is no record: {self._unreadable}"
        code = self._process.poll()
        if code is None or code == 0:
            return None
        if self._overdue:
            return f"worker {self.number} did not stop in {_STOP_S:.0f} s"
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        reason = self._last_words()
        return f"worker {self.number} {how}" + (f": {reason}" if reason else "")

    def _last_words(self) -> str:
        """Return the last line of the worker's traceback that is not a frame around others."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        said = [line.strip(" |+-") for line in lines]
        return next((line for line in reversed(said) if line), "")

    def close(self) -> None:
        """End the worker at once, if it has not ended, and close its pipes and files."""
        self._process.kill()
        self.tell_to_stop()
        self.wait(time.monotonic() + _STOP_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()


class Crew:
    """A crew is all workers of a demo, and the record of their calls."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.record = Record()
        self.lock = threading.Lock()
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.close()

    def start(self) -> None:
        """Start all processes, and let them begin when the last one is ready."""
        for job in self.jobs:
            self._workers.append(_Worker(job, self.record, self.lock))
        deadline = time.monotonic() + _START_S
        for worker in self._workers:
            while not worker.ready.wait(0.1):
                self.require_alive()
                if time.monotonic() > deadline:
                    raise WorkerDied(f"worker {worker.number} did not start in {_START_S:.0f} s")
        for worker in self._workers:
            worker.start()

    def require_alive(self) -> None:
        """Raise `WorkerDied` if a worker has ended."""
        for worker in self._workers:
            if not worker.is_running():
                raise WorkerDied(worker.failure() or f"worker {worker.number} ended early")

    def stop(self) -> list[str]:
        """Tell all workers to stop, wait until they have, and return how workers failed."""
        for worker in self._workers:
            worker.tell_to_stop()
        deadline = time.monotonic() + _STOP_S
        for worker in self._workers:
            worker.wait(deadline)
        failures = [worker.failure() for worker in self._workers]
        return [failure for failure in failures if failure is not None]
