"""Calls that are written for PyPI's zae-limiter 0.17 find the parameters that they name."""

from __future__ import annotations

import inspect
import json
import subprocess
import typing
from functools import cache
from typing import Any

import pytest

import zae_limiter
from tests.support.peer.environment import python
from zae_limiter.opening import ConnectOptions, OpenOptions
from zae_limiter.unopened import StackOfLimiter

pytestmark = pytest.mark.slow
CLASSES = ["RateLimiter", "Repository", "RepositoryBuilder", "StackManager", "Limit"]
TWINS = [f"Sync{name}" for name in CLASSES[:-1]]
# Parameters of features that come later: acquires of several resources, disabled and soft limits.
LATER = {"also", "cascade_out", "consistent_read", "disabled", "disabled_out", "stamp_ttl"} | {
    "reset_after", "reset_schedule", "schedule", "skip_absent", "soft",
}  # fmt: skip
LATER_OF = {("set_limits", "cascade"), ("set_resource_defaults", "cascade")}
# A limiter's own parameters are named: nobody counts nine of them.
NAMED_ONLY = {"RateLimiter", "SyncRateLimiter"}
DUMP = """
import inspect, json, sys, zae_limiter
def told(call):
    parameters = inspect.signature(call).parameters.values()
    return [(p.name, p.kind.name) for p in parameters if p.name not in ("self", "cls")]
def public(kind):
    named = {n: v for n, v in inspect.getmembers(kind, callable) if not n.startswith("_")}
    return {n: told(v) for n, v in {**named, "__init__": kind.__init__}.items()}
print(json.dumps({name: public(getattr(zae_limiter, name)) for name in sys.argv[1:]}))
"""


@cache
def theirs() -> dict[str, dict[str, list[tuple[str, str]]]]:
    command = [python(), "-I", "-c", DUMP, *CLASSES, *TWINS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, list[tuple[str, str]]]] = json.loads(done.stdout)
    return found


def accepted(call: Any) -> tuple[list[str], set[str]]:
    """Return the parameters of a call in order, and all names that it takes."""
    parameters = inspect.signature(call).parameters
    names = [name for name in parameters if name not in ("self", "cls")]
    spread = [p for p in parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    options: dict[str, Any] = {
        each.__name__: typing.get_type_hints(each)
        for each in (ConnectOptions, OpenOptions, StackOfLimiter)
    }
    named = [options[str(p.annotation)[len("Unpack[") : -1]] for p in spread]
    return names, {*names, *(name for each in named for name in each)}


@pytest.mark.parametrize("name", [*CLASSES, *TWINS])
def test_calls_of_0_17_find_their_parameters(name: str) -> None:
    kind = getattr(zae_limiter, name)
    calls = {call: each for call, each in theirs()[name].items() if hasattr(kind, call)}
    assert len(calls) > 5
    for call, parameters in calls.items():
        order, known = accepted(getattr(kind, call))
        wanted = [
            (each, how)
            for each, how in parameters
            if each not in LATER and (call, each) not in LATER_OF and not each.startswith("_")
        ]
        missing = {each for each, how in wanted if "VAR" not in how} - known
        assert not missing, f"{name}.{call} takes no {sorted(missing)}"
        counted = [each for each, how in wanted if how == "POSITIONAL_OR_KEYWORD"]
        if not (call == "__init__" and name in NAMED_ONLY):
            assert order[: len(counted)] == counted, f"{name}.{call} has another order"
