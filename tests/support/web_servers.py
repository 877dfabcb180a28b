"""Web servers in processes of their own, as an operator would start them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ZAEL_")}


@contextmanager
def served(
    command: list[str],
    port: int,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    interpreter: str = sys.executable,
) -> Iterator[None]:
    """Run a web server in `folder` until the block ends."""
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [interpreter, "-m", *command],
            cwd=folder,
            env={**environment(), **(settings or {})},
            stdout=log,
            stderr=log,
        )
    try:
        deadline_s = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < deadline_s, "the server does not listen"
                time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait(timeout=30)
