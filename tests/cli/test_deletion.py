"""Deletions and changes tell a person, and a program, what became of them."""

from __future__ import annotations

import json

import pytest

from tests.support.cli_runner import Zael

DELETIONS = [
    ("entity delete key-1", "entity create key-1", "entity 'key-1'"),
    ("entity delete-limits key-1", "entity set-limits key-1 -l rpm:1", "limits for entity 'key-1'"),
    ("resource delete-defaults gpt-4", "resource set-defaults gpt-4 -l rpm:1", "for resource"),
    ("system delete-defaults", "system set-defaults -l rpm:1", "system defaults"),
]


@pytest.mark.parametrize(("deletion", "making", "noun"), DELETIONS, ids=lambda text: text)
def test_deleting_what_is_not_there_says_so(
    deletion: str, making: str, noun: str, zael: Zael
) -> None:
    zael.out("namespace", "register", "default")
    told = zael.out(*deletion.split(), "-y")
    assert told.startswith("No ")
    assert noun in told
    assert told.endswith("nothing was deleted\n")
    assert zael.json(*deletion.split(), "-y") == {"deleted": False}
    zael.out(*making.split())
    assert zael.json(*deletion.split(), "-y") == {"deleted": True}


def test_a_question_does_not_mix_with_json(zael: Zael) -> None:
    zael.out("system", "set-defaults", "-l", "rpm:1")
    declined = zael.run("system", "delete-defaults", "--json", typed="n\n")
    assert json.loads(declined.stdout) == {"deleted": False}
    assert "Delete system defaults?" in declined.stderr


def test_changes_are_told_as_json(zael: Zael) -> None:
    limits = [{"name": "rpm", "capacity": 2, "refill_amount": 2, "refill_period_seconds": 60}]
    told = zael.json("entity", "set-limits", "key-1", "-r", "gpt-4", "-l", "rpm:2")
    subject = {"entity_id": "key-1", "resource": "gpt-4"}
    assert told == {**subject, "limits": limits, "inherit": False}
    told = zael.json("resource", "set-defaults", "gpt-4", "-l", "rpm:2")
    assert told == {"resource": "gpt-4", "limits": limits, "inherit": False}
    told = zael.json("system", "set-defaults", "-l", "rpm:2")
    assert told == {"limits": limits, "on_unavailable": None}
    told = zael.json("config", "set", "--level", "system", "--limits", '["rpm:2"]')
    assert (told["level"], told["limits"]) == ("system", limits)
