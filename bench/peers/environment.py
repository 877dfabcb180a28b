"""The virtual environment of the peers: pinned, and apart from the project's own."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

_PINS = Path(__file__).parents[1] / "peer-constraints.txt"
_CACHE = Path(__file__).parents[2] / ".cache"
_INSTALL_TIMEOUT_S = 600


class PeersMissing(Exception):
    """The peers cannot be installed here. Says why in one line."""


def python(pins: Path = _PINS) -> str:
    """The interpreter that has the peers. Installs them when it is first asked for."""
    made_of = f"{sys.version}{pins.read_text(encoding='utf-8')}"
    name = f"bench-peers-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    folder = _CACHE / name
    _CACHE.mkdir(exist_ok=True)
    with open(_CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(folder, pins)
            (folder / "complete").touch()
    return _interpreter(folder)


def _interpreter(folder: Path) -> str:
    return str(folder / "bin" / "python")


def _install(folder: Path, pins: Path) -> None:
    venv.create(folder, clear=True, with_pip=True)
    pip = [_interpreter(folder), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    command = [*pip, "install", "--no-deps", "-r", str(pins)]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        raise PeersMissing(f"pip says: {_last_line(error.stderr)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeersMissing(str(error)) from error


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"
