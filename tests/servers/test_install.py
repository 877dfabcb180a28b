from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import install
from tests.support.servers.install import ServerMissing
from tests.support.servers.processes import start

_RACER = """
import sys
from pathlib import Path
from tests.support.servers import install

install.CACHE = Path(sys.argv[1])

def slowly(target):
    with open(install.CACHE / "runs", "a") as runs:
        runs.write("run\\n")
    (target / "first").touch()
    import time; time.sleep(0.3)
    (target / "last").touch()

folder = install._once("thing", slowly)
assert (folder / "last").exists()
"""


def test_processes_that_race_install_once(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(tmp_path)], cwd=Path(__file__).parents[2]
        )
        for _ in range(4)
    ]
    assert [racer.wait(30) for racer in racers] == [0] * 4
    assert (tmp_path / "runs").read_text() == "run\n"


def test_an_installation_that_fails_says_so_in_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "CACHE", tmp_path)
    program = "import sys; sys.exit('no network\\nand more')"
    with pytest.raises(ServerMissing) as raised:
        install._once("thing", lambda target: install._run([sys.executable, "-c", program]))
    assert str(raised.value).startswith("cannot install")
    assert str(raised.value).endswith(": no network")
    assert not (tmp_path / "thing").exists()


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(ServerMissing, match="dynoxide"), start("oracle"):
        pass
