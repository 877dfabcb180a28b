from __future__ import annotations

import getpass
import sqlite3

from tests.support.cli_runner import Zael


def test_registered_namespaces_are_listed_and_shown(zael: Zael) -> None:
    text = zael.out("namespace", "register", "tenant-b", "tenant-a")
    assert text.startswith("Registered namespace 'tenant-b' (id: ")
    again = zael.json("namespace", "register", "tenant-a")
    listed = zael.json("namespace", "list")
    assert [each["name"] for each in listed] == ["tenant-a", "tenant-b"]
    assert again == {"tenant-a": listed[0]["namespace_id"]}
    assert f"| tenant-a  | {again['tenant-a']} |" in zael.out("namespace", "list")
    shown = zael.out("namespace", "show", "tenant-a").splitlines()
    assert shown[:3] == [
        "Namespace: tenant-a",
        f"  Id:      {again['tenant-a']}",
        "  Status:  active",
    ]
    assert zael.json("namespace", "show", "tenant-a")["name"] == "tenant-a"


def test_registering_creates_no_other_namespace(zael: Zael) -> None:
    zael.out("namespace", "register", "tenant-a")
    assert [each["name"] for each in zael.json("namespace", "list")] == ["tenant-a"]


def test_changes_of_a_namespace_name_their_author_though_no_namespace_is_left(zael: Zael) -> None:
    who = ("--principal", "ada@example.com")
    zael.out("namespace", "register", "tenant-a", *who)
    namespace_id = zael.json("namespace", "show", "tenant-a")["namespace_id"]
    zael.out("namespace", "delete", "tenant-a", "--yes", *who)
    zael.out("namespace", "recover", namespace_id, *who)
    zael.out("namespace", "delete", "tenant-a", "--yes")
    zael.out("namespace", "purge", namespace_id, "--yes", *who)
    assert zael.json("namespace", "list") == []
    events = zael.json("audit", "list", "-e", "$NAMESPACE:tenant-a")
    authors = [(event["action"], event["principal"]) for event in reversed(events)]
    assert authors == [
        ("namespace_registered", "ada@example.com"),
        ("namespace_deleted", "ada@example.com"),
        ("namespace_recovered", "ada@example.com"),
        ("namespace_deleted", getpass.getuser()),
        ("namespace_purged", "ada@example.com"),
    ]
    assert f"namespace_id={namespace_id}" in zael.out("audit", "list", "-e", "$NAMESPACE:tenant-a")


def test_reserved_namespace_names_are_refused(zael: Zael) -> None:
    assert zael.error("namespace", "register", "_") == (
        "Error: Invalid namespace: reserved for system use\n"
    )


def test_a_namespace_is_deleted_recovered_and_purged(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:10")
    namespace_id = zael.json("namespace", "show", "default")["namespace_id"]
    assert f"namespace recover {namespace_id}" in zael.out("namespace", "delete", "default", "-y")
    assert "is not registered" in zael.error("resource", "list")
    assert namespace_id in zael.out("namespace", "orphans")
    assert zael.json("namespace", "orphans")[0]["namespace"] == "default"
    assert zael.out("namespace", "recover", namespace_id).startswith(
        "Recovered namespace 'default'"
    )
    assert zael.json("resource", "list") == ["gpt-4"]
    zael.out("namespace", "delete", "default", "-y")
    assert zael.out("namespace", "purge", namespace_id, "-y") == (
        f"Purged namespace id '{namespace_id}'\n"
    )
    assert zael.out("namespace", "orphans") == "No orphan namespaces\n"
    assert zael.out("namespace", "list") == "No namespaces registered\n"


def test_purging_an_unknown_id_is_an_error(zael: Zael) -> None:
    zael.out("namespace", "register", "tenant-a")
    assert zael.error("namespace", "purge", "jT3kQx9aBcE", "-y") == (
        "Error: Namespace id 'jT3kQx9aBcE' does not exist\n"
    )


def test_deleting_a_namespace_tells_whom_it_hurts(zael: Zael) -> None:
    zael.out("namespace", "register", "default", "tenant-a")
    asked = zael.out("namespace", "delete", "default", typed="y\n")
    assert "has it open and of every client that names none: they will fail" in asked
    told = zael.out("namespace", "delete", "tenant-a", "-y")
    assert "'tenant-a' is the namespace of every client that has it open: they will fail." in told


def test_a_deleted_namespace_does_not_come_back_empty(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:10")
    zael.out("namespace", "delete", "default", "-y")
    message = zael.error("resource", "set-defaults", "gpt-4", "-l", "rpm:20")
    assert "was deleted and not purged: recover it, or register the name anew" in message
    zael.out("namespace", "register", "default")
    assert zael.json("resource", "list") == []


def test_recover_prints_the_namespace_as_json(zael: Zael) -> None:
    namespace_id = zael.json("namespace", "register", "tenant-a")["tenant-a"]
    zael.out("namespace", "delete", "tenant-a", "-y")
    recovered = zael.json("namespace", "recover", namespace_id)
    assert recovered == {"name": "tenant-a", "namespace_id": namespace_id}


def test_deleting_and_purging_ask_first(zael: Zael) -> None:
    namespace_id = zael.json("namespace", "register", "tenant-a")["tenant-a"]
    declined = zael.run("namespace", "delete", "tenant-a", typed="n\n")
    assert (declined.exit_code, "Aborted" in declined.output) == (1, True)
    zael.out("namespace", "show", "tenant-a")
    zael.out("namespace", "delete", "tenant-a", typed="y\n")
    declined = zael.run("namespace", "purge", namespace_id, typed="n\n")
    assert declined.exit_code == 1
    assert len(zael.json("namespace", "orphans")) == 1
    zael.out("namespace", "purge", namespace_id, typed="y\n")
    assert zael.json("namespace", "orphans") == []


def test_an_active_namespace_cannot_be_purged_or_recovered(zael: Zael) -> None:
    namespace_id = zael.json("namespace", "register", "tenant-a")["tenant-a"]
    assert "is active; delete it first" in zael.error("namespace", "purge", namespace_id, "-y")
    assert "is active, not deleted" in zael.error("namespace", "recover", namespace_id)


def test_missing_namespaces_are_an_error(zael: Zael) -> None:
    zael.out("namespace", "register", "tenant-a")
    for verb in ("show", "delete"):
        assert "is not registered" in zael.error("namespace", verb, "tenant-b")
    for call in (("recover", "nothing"), ("purge", "nothing", "-y")):
        message = zael.error("namespace", *call)
        assert message == "Error: Namespace id 'nothing' does not exist\n"


def test_ids_that_begin_with_a_dash_are_typed_as_they_are(zael: Zael) -> None:
    zael.out("namespace", "register", "tenant-a")
    with sqlite3.connect(zael.path) as db:
        db.execute("UPDATE namespaces SET namespace_id = '-npYz_45-ab'")
    told = zael.out("namespace", "delete", "tenant-a", "-y")
    assert "zae-limiter namespace recover -- -npYz_45-ab" in told
    assert zael.json("namespace", "recover", "-npYz_45-ab")["name"] == "tenant-a"
    zael.out("namespace", "delete", "tenant-a", "-y")
    zael.out("namespace", "purge", "--yes", "--", "-npYz_45-ab")
