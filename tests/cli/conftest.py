from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_runner import Zael


@pytest.fixture
def zael(tmp_path: Path) -> Zael:
    return Zael(tmp_path / "limits.db")
