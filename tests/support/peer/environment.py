"""The virtual environment of the existing package: pinned, and apart from the project's own."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

VERSION = "0.17.0"
_PINS = Path(__file__).with_name("constraints.txt")
_CACHE = Path(__file__).parents[3] / ".cache" / "peers"
_FOLDER = _CACHE / f"zae-limiter-{VERSION}"
_INSTALL_TIMEOUT_S = 600


def python() -> str:
    """Its interpreter. Installs the package when it is first asked for."""
    made_of = f"{sys.version}{_PINS.read_text(encoding='utf-8')}"
    stamp = _FOLDER / f"complete-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / f"{_FOLDER.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            _install()
            stamp.touch()
    return _interpreter()


def _interpreter() -> str:
    return str(_FOLDER / "bin" / "python")


def _install() -> None:
    venv.create(_FOLDER, clear=True, with_pip=True)
    pip = [_interpreter(), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(
        [*pip, "install", "--no-deps", "-r", str(_PINS)],
        capture_output=True,
        text=True,
        timeout=_INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"cannot install zae-limiter {VERSION}: {done.stderr.strip()[-500:]}")
