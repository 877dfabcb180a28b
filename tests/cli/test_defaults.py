from __future__ import annotations

from tests.support.cli_runner import Zael


def test_defaults_of_a_resource_are_set_and_shown(zael: Zael) -> None:
    text = zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:100", "-l", "tpm:10000/hour")
    assert text.splitlines() == [
        "Set 2 default(s) for resource 'gpt-4':",
        "  rpm: 100/min",
        "  tpm: 10,000/hour",
    ]
    assert zael.out("resource", "get-defaults", "gpt-4").splitlines()[1:] == text.splitlines()[1:]
    assert [each["name"] for each in zael.json("resource", "get-defaults", "gpt-4")] == [
        "rpm",
        "tpm",
    ]
    none = zael.out("resource", "get-defaults", "other")
    assert none == "No defaults configured for resource 'other'\n"


def test_resources_with_defaults_are_listed(zael: Zael) -> None:
    zael.out("namespace", "register", "default")
    assert zael.out("resource", "list") == "No resources with defaults\n"
    for name in ("gpt-4", "claude"):
        zael.out("resource", "set-defaults", name, "-l", "rpm:100")
    assert zael.out("resource", "list") == "claude\ngpt-4\n"
    assert zael.json("resource", "list") == ["claude", "gpt-4"]


def test_deleting_defaults_of_a_resource_asks_first(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:100")
    assert "Cancelled" in zael.out("resource", "delete-defaults", "gpt-4", typed="n\n")
    assert zael.json("resource", "list") == ["gpt-4"]
    assert "Deleted defaults" in zael.out("resource", "delete-defaults", "gpt-4", typed="y\n")
    assert zael.json("resource", "list") == []


def test_defaults_of_the_system_are_set_and_shown(zael: Zael) -> None:
    zael.out("namespace", "register", "default")
    assert zael.out("system", "get-defaults") == "No system defaults configured\n"
    zael.out("system", "set-defaults", "-l", "rpm:60", "--on-unavailable", "allow")
    text = zael.out("system", "set-defaults", "-l", "rpm:90")
    assert text.splitlines() == ["Set 1 system default(s):", "  rpm: 90/min"]
    assert zael.out("system", "get-defaults").splitlines() == [
        "System defaults:",
        "  rpm: 90/min",
        "  On unavailable: allow",
    ]
    found = zael.json("system", "get-defaults")
    assert found["on_unavailable"] == "allow"
    assert found["limits"][0]["capacity"] == 90


def test_deleting_defaults_of_the_system_asks_first(zael: Zael) -> None:
    zael.out("system", "set-defaults", "-l", "rpm:60")
    assert "Cancelled" in zael.out("system", "delete-defaults", typed="n\n")
    assert zael.json("system", "get-defaults")["limits"]
    assert zael.out("system", "delete-defaults", "--yes") == "Deleted system defaults\n"
    assert zael.json("system", "get-defaults") == {"limits": [], "on_unavailable": None}


def test_an_unknown_on_unavailable_is_a_usage_error(zael: Zael) -> None:
    message = zael.error(
        "system", "set-defaults", "-l", "rpm:60", "--on-unavailable", "maybe", code=2
    )
    assert "'allow', 'block'" in message


def test_defaults_of_one_namespace_are_not_shown_in_another(zael: Zael) -> None:
    zael.out("resource", "set-defaults", "gpt-4", "-l", "rpm:1", "-N", "tenant-a")
    zael.out("namespace", "register", "tenant-b")
    assert zael.json("resource", "list", "--namespace", "tenant-a") == ["gpt-4"]
    assert zael.json("resource", "list", "--namespace", "tenant-b") == []
