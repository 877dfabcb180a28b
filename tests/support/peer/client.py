"""The existing package at work on a table, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.peer.environment import python
from tests.support.servers.processes import Server
from zae_limiter import Limit

_PROGRAM = Path(__file__).with_name("serve.py")
_END_TIMEOUT_S = 10


class PeerError(Exception):
    """What the package raised there, by the name of its type."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Peer:
    """Calls the package's `Repository` and `RateLimiter`, one call at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, name: str, *args: Any, **named: Any) -> None:
        """Ask, and let the answer wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, _plain(args), _plain(named)]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """What came of it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError("Ended", self._process.communicate()[1])
        told = json.loads(line)
        if "error" in told:
            raise PeerError(*told["error"])
        return _rich(told["result"])

    def call(self, name: str, *args: Any, **named: Any) -> Any:
        """Ask, and wait for the answer."""
        self.begin(name, *args, **named)
        return self.answer()

    def limiter(self, method: str, *args: Any, **named: Any) -> Any:
        """Call the limiter."""
        return self.call("limiter", method, *args, **named)

    def repository(self, method: str, *args: Any, **named: Any) -> Any:
        """Call the repository."""
        return self.call("repository", method, *args, **named)

    def take(self, entity_id: str, resource: str, /, **options: Any) -> bool:
        """Acquire; amounts and options by name, the former those that are no option."""
        known = ("adjust", "fails", "namespace", "speculative")
        consume = {name: options[name] for name in options if name not in known}
        named = {name: options[name] for name in options if name in known}
        admitted: bool = self.call("acquire", entity_id, resource, consume, **named)
        return admitted


def _plain(value: Any) -> Any:
    if isinstance(value, Limit):
        fields = (value.name, value.capacity, value.refill_amount, value.refill_period_seconds)
        return {"limit": fields}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _rich(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"limit"}:
        return Limit(*value["limit"])
    if isinstance(value, dict):
        return {key: _rich(each) for key, each in value.items()}
    return [_rich(each) for each in value] if isinstance(value, list) else value


@contextmanager
def running(server: Server, table_name: str) -> Iterator[Peer]:
    """The package on a table, for the length of a block."""
    keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
    # Its environment knows nothing of ours: not the package of the same name above all.
    hidden = ("PYTHONPATH", "ZAEL_STACK", "ZAEL_NAMESPACE")
    environment = {name: text for name, text in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        [python(), str(_PROGRAM), server.url, server.region, table_name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, **{name: key for name, key in keys.items() if key is not None}},
    )
    try:
        yield Peer(process)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """It ends when nothing more can come."""
    try:
        process.communicate(timeout=_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
