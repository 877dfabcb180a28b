"""The processes of one measurement: started together, listened to, and always ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from tests.support.peer import environment as existing

from .costs import Cost
from .counting.proxy import CountingProxy
from .interrupts import interrupts
from .peers import environment
from .servers import CALLER
from .subjects import Environment
from .worker.job import Report
from .workloads.workload import Case

_ROOT = Path(__file__).parents[1]
_LONGEST_S = 1800.0


class MeasurementFailed(Exception):
    """A process that was measured ended without a report."""


def measure(
    case: Case, server_url: str = "", about_to_start: Callable[[], None] = lambda: None
) -> list[Report]:
    """Measure once, in fresh processes, and return what each of them saw."""
    with tempfile.TemporaryDirectory(prefix="zae-limiter-bench-") as directory:
        place = f"bench-{uuid.uuid4().hex}"
        job = replace(case.job, directory=directory, server=server_url, place=place)
        command = [python(case.subject.environment), "-m", "bench.worker", job.to_text()]
        with _crew(command, case.processes, _environment(case)) as crew:
            about_to_start()
            for member in crew:
                member.start()
            return [Report.from_text(member.line()) for member in crew]


def count(case: Case, counter: CountingProxy) -> tuple[Cost, list[Report]]:
    """What all acquires of a measurement cost together, set-up and warm-up excluded."""
    totals: list[Cost] = []
    reports = measure(case, counter.url, lambda: totals.append(counter.total))
    return counter.total - totals[0], reports


def python(which: Environment) -> str:
    """An interpreter. Others than ours are installed when they are first asked for."""
    if which == "ours":
        return sys.executable
    return environment.python() if which == "peers" else existing.python()


def _environment(case: Case) -> dict[str, str]:
    """What is set in the processes. Who is not ours must not find our package."""
    kept = [] if case.subject.is_peer else filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join([str(_ROOT), *kept])
    hidden = ("AWS_", "ZAEL_") if case.subject.store else ()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    return {**inherited, **(CALLER if case.subject.store else {}), "PYTHONPATH": path}


@contextlib.contextmanager
def _crew(command: Sequence[str], size: int, environ: dict[str, str]) -> Iterator[list[_Member]]:
    with contextlib.ExitStack() as ends:
        first = _enlist(command, environ, ends)
        # It makes the store; not every limiter lets several do that at once.
        first.line()
        others = [_enlist(command, environ, ends) for _ in range(size - 1)]
        for member in others:
            member.line()
        yield [first, *others]


def _enlist(command: Sequence[str], environ: dict[str, str], ends: contextlib.ExitStack) -> _Member:
    errors = ends.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115 - it is entered
    member = _Member(command, environ, errors)
    ends.callback(member.end)
    return member


class _Member:
    """One process. It says a line when it is ready and another one when it is done."""

    def __init__(self, command: Sequence[str], environ: dict[str, str], errors: IO[str]) -> None:
        self._errors = errors
        # In a session of its own it does not hear a Ctrl-C in the terminal: it is ended here.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=_ROOT,
            env=environ,
            start_new_session=True,
        )
        self._watchdog = threading.Timer(_LONGEST_S, self._kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def start(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """Wait for its next line."""
        assert self._process.stdout is not None
        with interrupts.listening():
            line = self._process.stdout.readline()
        if not line:
            raise MeasurementFailed(self._last_words())
        return line

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        return said[-1] if said else f"a process ended with code {code}"

    def end(self) -> None:
        """End it, if it has not ended."""
        self._watchdog.cancel()
        self._kill()
        self._process.communicate()

    def _kill(self) -> None:
        # It can still be signalled until it has been waited for.
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
