from __future__ import annotations

import pytest

from tests.support.cli_runner import Zael
from zae_limiter import SyncRepository


def test_an_entity_that_was_created_is_shown(zael: Zael) -> None:
    text = zael.out("entity", "create", "acme", "--display-name", "Acme, Inc.")
    assert text.startswith("Created entity 'acme'\n")
    zael.out("entity", "create", "key-1", "--parent", "acme", "--cascade", "-m", "tier=gold")
    shown = zael.out("entity", "show", "key-1")
    assert shown.splitlines()[:5] == [
        "Entity: key-1",
        "  Name:     key-1",
        "  Parent:   acme",
        "  Cascade:  yes",
        "  Metadata: tier=gold",
    ]
    found = zael.json("entity", "show", "acme")
    assert (found["id"], found["name"], found["parent_id"]) == ("acme", "Acme, Inc.", None)
    assert found["cascade"] is False


def test_create_prints_the_entity_as_json(zael: Zael) -> None:
    created = zael.json("entity", "create", "key-1", "-m", "tier=gold", "-m", "a=b=c")
    assert created["metadata"] == {"tier": "gold", "a": "b=c"}
    assert zael.json("entity", "show", "key-1") == created


def test_creating_an_entity_twice_is_an_error(zael: Zael) -> None:
    zael.out("entity", "create", "key-1")
    assert zael.error("entity", "create", "key-1") == "Error: Entity 'key-1' already exists\n"


def test_showing_a_missing_entity_is_an_error(zael: Zael) -> None:
    zael.out("entity", "create", "key-1")
    assert zael.error("entity", "show", "key-2") == "Error: Entity 'key-2' does not exist\n"


def test_stored_control_characters_do_not_reach_the_terminal(zael: Zael) -> None:
    zael.out("entity", "create", "acme")
    zael.out("entity", "create", "key-1", "--parent", "acme", "--display-name", "\x1b[2Jgone\r\n")
    for text in (zael.out("entity", "show", "key-1"), zael.out("entity", "children", "acme")):
        assert "\\x1b[2Jgone\\r\\n" in text
        assert "\x1b" not in text


def test_an_update_keeps_the_fields_that_it_does_not_name(zael: Zael) -> None:
    zael.out("entity", "create", "key-1", "-m", "tier=gold", "-m", "trial=yes")
    text = zael.out("entity", "update", "key-1", "-m", "trial=", "-m", "team=red")
    assert text.startswith("Updated entity 'key-1'\n")
    zael.out("entity", "update", "key-1", "--display-name", "One")
    found = zael.json("entity", "show", "key-1")
    assert found["metadata"] == {"tier": "gold", "team": "red"}
    assert (found["name"], found["version"]) == ("One", 3)


def test_update_of_an_older_version_is_refused(zael: Zael) -> None:
    zael.out("entity", "create", "key-1")
    zael.out("entity", "update", "key-1", "--display-name", "One", "--expected-version", "1")
    message = zael.error(
        "entity", "update", "key-1", "--display-name", "Two", "--expected-version", "1"
    )
    assert "is at version 2, not 1" in message
    assert zael.json("entity", "show", "key-1")["name"] == "One"


def test_an_update_without_a_field_or_of_a_missing_entity_is_an_error(zael: Zael) -> None:
    zael.out("entity", "create", "key-1")
    assert "Nothing to change" in zael.error("entity", "update", "key-1", code=2)
    assert "does not exist" in zael.error("entity", "update", "key-2", "-m", "a=b")


def test_metadata_that_is_not_text_is_shown_and_stays(zael: Zael) -> None:
    with SyncRepository.open(url=zael.url) as repository:
        repository.create_entity("key-1", metadata={"n": 0, "on": False, "deep": {"a": [1]}})
    assert 'deep={"a": [1]}, n=0, on=false' in zael.out("entity", "show", "key-1")
    zael.out("entity", "update", "key-1", "-m", "tier=gold")
    found = zael.json("entity", "show", "key-1")["metadata"]
    assert found == {"n": 0, "on": False, "deep": {"a": [1]}, "tier": "gold"}


@pytest.mark.parametrize("pair", ["tier", "=gold", ""])
def test_metadata_that_is_no_pair_is_a_usage_error(zael: Zael, pair: str) -> None:
    assert "KEY=VALUE" in zael.error("entity", "create", "key-1", "-m", pair, code=2)


def test_deleting_an_entity_asks_first(zael: Zael) -> None:
    zael.out("entity", "create", "key-1")
    declined = zael.run("entity", "delete", "key-1", typed="n\n")
    assert declined.exit_code == 1
    assert "Aborted" in declined.output
    zael.out("entity", "show", "key-1")
    assert "Deleted entity 'key-1'" in zael.out("entity", "delete", "key-1", typed="y\n")
    assert "does not exist" in zael.error("entity", "show", "key-1")


def test_delete_removes_limits_of_an_entity_that_was_never_created(zael: Zael) -> None:
    zael.out("entity", "set-limits", "key-1", "-l", "rpm:10")
    assert zael.out("entity", "delete", "key-1", "-y").startswith("No entity 'key-1'; deleted")
    assert zael.json("entity", "get-limits", "key-1") == []


def test_children_of_an_entity_are_listed(zael: Zael) -> None:
    zael.out("entity", "create", "acme")
    assert zael.out("entity", "children", "acme") == "No children of entity 'acme'\n"
    for key in ("key-2", "key-1"):
        zael.out("entity", "create", key, "--parent", "acme")
    assert [child["id"] for child in zael.json("entity", "children", "acme")] == ["key-1", "key-2"]
    lines = zael.out("entity", "children", "acme").splitlines()
    assert lines[0].startswith("+--------+")
    assert lines[1].startswith("| Entity | Name")
    assert lines[3].startswith("| key-1  | key-1 | no ")


def test_limits_of_an_entity_are_set_and_shown(zael: Zael) -> None:
    text = zael.out(
        "entity", "set-limits", "key-1", "-r", "gpt-4", "-l", "rpm:1000", "-l", "tpm:50/5min:80"
    )
    assert text.splitlines() == [
        "Set 2 limit(s) for entity 'key-1' (resource 'gpt-4'):",
        "  rpm: 1,000/min",
        "  tpm: 50/5min (burst: 80)",
    ]
    assert zael.out("entity", "get-limits", "key-1", "-r", "gpt-4").splitlines() == [
        "Limits for entity 'key-1' (resource 'gpt-4'):",
        "  rpm: 1,000/min",
        "  tpm: 50/5min (burst: 80)",
    ]
    assert zael.json("entity", "get-limits", "key-1", "-r", "gpt-4")[1] == {
        "name": "tpm",
        "capacity": 80,
        "refill_amount": 50,
        "refill_period_seconds": 300,
    }


def test_limits_without_a_resource_apply_to_all_resources(zael: Zael) -> None:
    zael.out("entity", "set-limits", "key-1", "-l", "rpm:10")
    assert "(resource '_default_')" in zael.out("entity", "get-limits", "key-1")
    none = zael.out("entity", "get-limits", "key-1", "-r", "gpt-4")
    assert none == "No limits configured for entity 'key-1' (resource 'gpt-4')\n"


def test_bad_limits_are_usage_errors_and_change_nothing(zael: Zael) -> None:
    for text in ("rpm", "rpm:0", "wcu:10", "rpm:10/week"):
        message = zael.error("entity", "set-limits", "key-1", "-l", text, code=2)
        assert "Invalid value for '--limit'" in message
    assert not zael.path.exists()


def test_a_limit_named_twice_is_an_error(zael: Zael) -> None:
    message = zael.error("entity", "set-limits", "key-1", "-l", "rpm:1", "-l", "rpm:2")
    assert message == "Error: Invalid --limit: names rpm more than once\n"


def test_deleting_limits_asks_first(zael: Zael) -> None:
    zael.out("entity", "set-limits", "key-1", "-l", "rpm:10")
    assert "Cancelled" in zael.out("entity", "delete-limits", "key-1", typed="n\n")
    assert len(zael.json("entity", "get-limits", "key-1")) == 1
    assert zael.out("entity", "delete-limits", "key-1", "-y").startswith("Deleted limits for")
    assert zael.json("entity", "get-limits", "key-1") == []


def test_entities_with_limits_are_listed_to_the_end(zael: Zael) -> None:
    ids = [f"key-{number}" for number in range(7)]
    for entity_id in ids:
        zael.out("entity", "set-limits", entity_id, "-r", "gpt-4", "-l", "rpm:10")
    listed = zael.out("entity", "list", "--with-custom-limits", "gpt-4", "--limit", "3")
    assert listed.splitlines() == ids
    assert zael.json("entity", "list", "--with-custom-limits", "gpt-4") == ids
    none = zael.out("entity", "list", "--with-custom-limits", "other")
    assert none == "No entities with custom limits for resource 'other'\n"


def test_resources_with_entity_limits_are_listed(zael: Zael) -> None:
    zael.out("entity", "create", "key-1")
    assert zael.out("entity", "list-resources") == "No resources with entity limits\n"
    zael.out("entity", "set-limits", "key-1", "-r", "gpt-4", "-l", "rpm:10")
    assert zael.out("entity", "list-resources") == "gpt-4\n"
    assert zael.json("entity", "list-resources") == ["gpt-4"]


def test_entities_are_listed_page_by_page(zael: Zael) -> None:
    zael.out("entity", "create", "acme")
    for key in ("key-2", "key-1", "key-3"):
        zael.out("entity", "create", key, "--parent", "acme")
    text = zael.out("entity", "list", "--limit", "2")
    assert text.splitlines()[1].split()[1::2] == ["Entity", "Name", "Parent", "Cascade", "Created"]
    assert text.endswith("There is more: --after key-1\n")
    page = zael.json("entity", "list", "--limit", "2", "--after", "key-1")
    assert [each["id"] for each in page["entities"]] == ["key-2", "key-3"]
    assert page["next_cursor"] is None


def test_a_list_of_entities_is_narrowed_by_prefix_and_parent(zael: Zael) -> None:
    zael.out("entity", "create", "acme")
    zael.out("entity", "create", "key-1", "--parent", "acme")

    def ids(*args: str) -> list[str]:
        return [each["id"] for each in zael.json("entity", "list", *args)["entities"]]

    assert ids("--prefix", "ac") == ["acme"]
    assert ids("--parent", "acme") == ["key-1"]
    assert zael.out("entity", "list", "--prefix", "zz") == "No entities\n"
    both = zael.error("entity", "list", "--prefix", "k", "--with-custom-limits", "x", code=2)
    assert "--with-custom-limits goes with --limit only" in both


def test_limits_that_hide_those_of_the_next_level_are_warned_of(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:10", "-l", "tpm:1000")
    zael.out("system", "set-defaults", "-l", "rpd:5")
    said = zael.run("entity", "set-limits", "key-1", "-r", "gpt-4", "-l", "rpm:20")
    assert said.stderr.splitlines() == [
        "Warning: 'rpd' of the system does not apply here any more; --inherit keeps it",
        "Warning: 'tpm' of resource 'gpt-4' does not apply here any more; --inherit keeps it",
    ]
    assert zael.out("entity", "set-limits", "key-1", "-r", "gpt-4", "-l", "rpm:20", "--inherit")
    assert (
        "'tpm' of resource 'gpt-4'" in zael.run("entity", "set-limits", "k", "-l", "rpm:1").stderr
    )
    assert "'rpd' of the system" in zael.run("resource", "set-defaults", "r", "-l", "rpm:1").stderr
    assert zael.out("resource", "set-defaults", "r", "-l", "rpm:1", "--inherit")
