"""The installed `zae-limiter` applies large manifests, is killed, and applies them side by side."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.aggregators import wait_until
from zae_limiter import AuditAction, SyncRepository

pytestmark = pytest.mark.slow
SCRIPT = Path(sys.executable).parent / "zae-limiter"
# The server of tests makes 200 changes in a second, a SQLite file thousands.
SIZES = {"sqlite": 5_000, "dynamodb": 200}
_PIPE_BYTES = 4096
_LINE_BYTES = 30


@pytest.fixture(params=SIZES)
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/limits.db"
    found: str = request.getfixturevalue("table").url
    return found


def write_manifest(file: Path, entities: int, rate: int = 100) -> Path:
    """Write a manifest in which every tenth entity is the parent of the nine before it."""
    rows = ["namespace: default", f"system: {{limits: {{rpm: {rate}}}}}", "entities:"]
    for number in range(entities):
        org = f"org-{number // 10}"
        if number % 10 == 9:
            rows.append(f"  {org}: {{name: Org {number // 10}, limits: {{rpm: {rate}/sec}}}}")
        else:
            about = f"parent: {org}, cascade: true, limits: {{rpm: {rate + number}}}"
            rows.append(f"  key-{number}: {{{about}}}")
    file.write_text("\n".join(rows), encoding="utf-8")
    return file


def start(url: str, *args: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(SCRIPT), *args],
        env={**os.environ, "ZAEL_URL": url},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=300)
    assert "Traceback" not in errors
    return process.returncode, out, errors


def printed(url: str, *args: str) -> Any:
    code, out, errors = finish(start(url, *args, "--json"))
    assert code == 0, errors
    return json.loads(out)


def times_set(url: str, entities: Iterator[str]) -> set[int]:
    """Return how often the limits of each of these entities were set."""
    with SyncRepository.connect(url=url) as repository:
        return {
            sum(e.action == AuditAction.LIMITS_SET for e in repository.get_audit_events(entity))
            for entity in entities
        }


def sampled(entities: int) -> Iterator[str]:
    return (f"key-{n}" for n in range(0, entities, entities // 20) if n % 10 != 9)


def test_an_apply_that_is_killed_half_way_is_resumed(kind: str, url: str, tmp_path: Path) -> None:
    entities = SIZES[kind]
    file = str(write_manifest(tmp_path / "limits.yaml", entities))
    # The pipe takes one line of progress and no more, so that the apply waits to be killed.
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.write(writing, b"." * (_PIPE_BYTES - _LINE_BYTES))
    process = start(url, "limits", "apply", file, "--quiet", stderr=writing)
    os.close(writing)
    try:
        wait_until(lambda: unread(reading) > _PIPE_BYTES - _LINE_BYTES, "progress is shown")
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    finally:
        os.close(reading)
        process.communicate()

    steps = 2 * entities + 1
    rest = printed(url, "limits", "plan", file)
    assert not rest["conflicts"]
    assert 0 < rest["create"] < steps
    assert [change["drift"] for change in rest["changes"] if change["drift"]] == []
    code, out, errors = finish(start(url, "limits", "apply", file, "--quiet"))
    assert code == 0, errors
    assert f"{rest['create']} created" in out
    shown = errors.splitlines()
    assert len(shown) >= 15
    assert shown[-1].startswith("Applied: ")
    left = printed(url, "limits", "plan", file)
    assert (left["changes"], left["adopt"]) == ([], 0)
    assert times_set(url, sampled(entities)) == {1}


def unread(pipe: int) -> int:
    count = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(count, sys.byteorder)


def test_two_applies_of_one_manifest_at_once_make_each_change_once(
    kind: str, url: str, tmp_path: Path
) -> None:
    entities = min(SIZES[kind], 400)
    file = str(write_manifest(tmp_path / "limits.yaml", entities))
    printed(url, "namespace", "register", "default")
    both = [start(url, "limits", "apply", file, "--quiet") for _ in range(2)]
    assert [finish(each)[0] for each in both] == [0, 0]
    left = printed(url, "limits", "plan", file)
    assert (left["changes"], left["adopt"]) == ([], 0)
    assert times_set(url, sampled(entities)) == {1}


def test_two_applies_of_different_manifests_at_once_end_in_one_of_them_or_say_so(
    kind: str, url: str, tmp_path: Path
) -> None:
    entities = 100
    files = [write_manifest(tmp_path / f"{rate}.yaml", entities, rate) for rate in (100, 200)]
    printed(url, "limits", "apply", str(write_manifest(tmp_path / "0.yaml", entities, 300)))
    both = [start(url, "limits", "apply", str(file), "--quiet") for file in files]
    ended = [finish(each) for each in both]
    for code, _, errors in ended:
        assert code == 0 or "by somebody else" in errors
    plans = [printed(url, "limits", "plan", str(file)) for file in files]
    agreed = [not plan["changes"] for plan in plans]
    if [code for code, _, _ in ended] == [0, 0]:
        assert any(agreed)
    printed(url, "limits", "apply", str(files[0]), "--force")
    assert printed(url, "limits", "plan", str(files[0]))["changes"] == []
