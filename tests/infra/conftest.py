"""A whole AWS for stacks, and the command line on it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.support.cli_runner import Zael
from tests.support.servers.processes import Server
from tests.support.stacks import LocalAws, forget_environment


@pytest.fixture
def aws(ministack: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LocalAws:
    """The services, with a name for a stack that no other test has."""
    forget_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", ministack.region)
    return LocalAws(ministack, f"app-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def zael(tmp_path: Path) -> Zael:
    return Zael(tmp_path / "limits.db")
