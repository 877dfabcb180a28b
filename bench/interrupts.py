"""Ctrl-C, heard only where something is waited for: nothing is started or ended by halves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Interrupts:
    """Decides when an interrupt is raised. Use it as a context manager, in the main thread.

    One that comes at another time is kept until something is waited for.
    """

    def __init__(self) -> None:
        self._heard = False
        self._listening = False

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard = True
        if self._listening:
            raise KeyboardInterrupt

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Something is waited for."""
        try:
            self._listening = True
            if self._heard:
                raise KeyboardInterrupt
            yield
        finally:
            self._listening = False


interrupts = Interrupts()
