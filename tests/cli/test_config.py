from __future__ import annotations

import json

import pytest

from tests.support.cli_runner import Zael


def test_config_set_changes_the_given_fields_and_keeps_the_rest(zael: Zael) -> None:
    zael.out("config", "set", "--level", "system", "--limits", '["rpm:60"]', "--no-auto-update")
    text = zael.out(
        "config", "set", "--level", "system", "--on-unavailable", "block", "--strict-version"
    )
    assert text.splitlines() == [
        "Set at level 'system':",
        "  On unavailable: block",
        "  Strict version: yes",
    ]
    assert zael.out("config", "get", "--level", "system").splitlines() == [
        "Configuration at level 'system':",
        "  On unavailable: block",
        "  Auto update:    no",
        "  Strict version: yes",
        "  Config version: 2",
        "  rpm: 60/min",
    ]


@pytest.mark.parametrize(
    "place",
    [
        ["--level", "system"],
        ["--level", "resource", "--resource", "gpt-4"],
        ["--level", "entity", "--identifier", "key-1"],
        ["--level", "entity", "--identifier", "key-1", "--resource", "gpt-4"],
    ],
    ids=" ".join,
)
def test_config_printed_as_json_can_be_set_again(zael: Zael, place: list[str]) -> None:
    zael.out("namespace", "register", "default")
    assert zael.json("config", "get", *place) is None
    assert "Nothing configured at level" in zael.out("config", "get", *place)
    zael.out("config", "set", *place, "--limits", '["rpm:60", "tpm:5/5min:9"]')
    limits = zael.json("config", "get", *place)["limits"]
    assert limits[1] == {
        "name": "tpm",
        "capacity": 9,
        "refill_amount": 5,
        "refill_period_seconds": 300,
    }
    zael.out("config", "set", *place, "--limits", json.dumps(limits))
    again = zael.json("config", "get", *place)
    assert (again["limits"], again["config_version"]) == (limits, 2)


@pytest.mark.parametrize(
    "limits",
    ["rpm:60", "{}", '"rpm:60"', "[1]", "[{}]", '[{"name": "rpm"}]', '["rpm"]', '["wcu:1"]'],
)
def test_config_set_with_invalid_limits_is_a_usage_error(zael: Zael, limits: str) -> None:
    message = zael.error("config", "set", "--level", "system", "--limits", limits, code=2)
    assert "Invalid value for '--limits'" in message
    assert not zael.path.exists()


def test_config_set_without_a_field_is_a_usage_error(zael: Zael) -> None:
    assert "Nothing to set" in zael.error("config", "set", "--level", "system", code=2)
    assert not zael.path.exists()


def test_config_set_with_wrong_identifiers_for_its_level_is_an_error(zael: Zael) -> None:
    limits = ("--limits", '["rpm:60"]')
    assert "needs an entity id" in zael.error("config", "set", "--level", "entity", *limits)
    assert "needs a resource" in zael.error("config", "set", "--level", "resource", *limits)
    system = ("--level", "system", "--resource", "gpt-4")
    assert "takes none" in zael.error("config", "set", *system, *limits)


def test_config_set_stores_behaviour_at_the_system_level_only(zael: Zael) -> None:
    resource = ("--level", "resource", "--resource", "gpt-4", "--on-unavailable", "allow")
    assert "system level only" in zael.error("config", "set", *resource)
