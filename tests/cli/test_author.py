"""Every change names the one who made it."""

from __future__ import annotations

import getpass

import pytest

from tests.support.cli_runner import Zael

CHANGES = [
    ("key-1", ("entity", "create", "key-1")),
    ("key-1", ("entity", "update", "key-1", "--display-name", "One")),
    ("key-1", ("entity", "set-limits", "key-1", "-l", "rpm:10")),
    ("key-1", ("entity", "delete-limits", "key-1", "--yes")),
    ("$RESOURCE:gpt-4", ("resource", "set-defaults", "gpt-4", "-l", "rpm:10")),
    ("$RESOURCE:gpt-4", ("resource", "delete-defaults", "gpt-4", "--yes")),
    ("$SYSTEM", ("system", "set-defaults", "-l", "rpm:10")),
    ("$SYSTEM", ("system", "delete-defaults", "--yes")),
    ("$SYSTEM", ("config", "set", "--level", "system", "--on-unavailable", "allow")),
    ("key-1", ("entity", "delete", "key-1", "--yes")),
]


def authors(zael: Zael) -> set[str | None]:
    ids = {entity_id for entity_id, _ in CHANGES}
    events = [event for each in ids for event in zael.json("audit", "list", "-e", each)]
    assert len(events) == len(CHANGES)
    return {event["principal"] for event in events}


def test_a_change_names_the_user_of_the_system(zael: Zael) -> None:
    for _, change in CHANGES:
        zael.out(*change)
    assert authors(zael) == {getpass.getuser()}


def test_a_change_names_the_principal_that_was_given(zael: Zael) -> None:
    for _, change in CHANGES:
        zael.out(*change, "--principal", "ada@example.com")
    assert authors(zael) == {"ada@example.com"}


def test_a_bad_principal_changes_nothing(zael: Zael) -> None:
    zael.out("entity", "create", "key-1")
    message = zael.error("entity", "set-limits", "key-1", "-l", "rpm:1", "--principal", "a b")
    assert "Invalid --principal" in message
    assert zael.json("entity", "get-limits", "key-1") == []


def test_a_user_whose_name_is_no_id_is_named_as_near_as_can_be(
    zael: Zael, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "CORP\\J. Doe")
    zael.out("entity", "create", "key-1")
    (event,) = zael.json("audit", "list", "-e", "key-1")
    assert event["principal"] == "CORP-J.-Doe"


def test_the_table_of_events_shows_what_was_set(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:10", "-l", "tpm:50000/5min:80000")
    shown = zael.out("audit", "list", "-e", "$RESOURCE:gpt-4")
    assert "limits=rpm: 10/min, tpm: 50,000/5min (burst: 80,000)" in shown


def test_the_table_of_events_shows_what_was_emptied(zael: Zael) -> None:
    zael.out("entity", "create", "key-1", "-m", "tier=gold")
    zael.out("entity", "update", "key-1", "-m", "tier=")
    updated, created = zael.out("audit", "list", "-e", "key-1").splitlines()[3:5]
    assert "metadata={}" in updated
    assert 'metadata={"tier": "gold"}; name=key-1 ' in created
