"""`zae-limiter limits` reads manifests and prints their schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.cli_runner import Zael

MANIFEST = """\
namespace: default
system:
  limits: {rpm: 60}
entities:
  key-1:
    parent: acme
    limits: {rpm: 100/min}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    file = tmp_path / "limits.yaml"
    file.write_text(MANIFEST, encoding="utf-8")
    return file


def test_a_valid_manifest_is_counted(zael: Zael, manifest: Path) -> None:
    counted = {"namespace": "default", "records": 2, "entities": 1}
    assert zael.json("limits", "validate", str(manifest)) == counted
    assert zael.json("limits", "validate", "-f", str(manifest)) == counted
    assert "2 record(s) of limits, 1 entities" in zael.out(
        "limits", "validate", "-", typed=MANIFEST
    )


def test_an_invalid_manifest_lists_every_error_as_compilers_do(zael: Zael, manifest: Path) -> None:
    manifest.write_text("namespace: default\nsystem: {limits: {rpm: 0, tpm: x}}\n")
    lines = zael.error("limits", "validate", str(manifest)).splitlines()
    assert lines[0] == f"Error: {manifest}:2:24: system.limits.rpm: capacity must be positive"
    assert lines[1].startswith(f"{manifest}:2:32: system.limits.tpm: 'x' is not a rate")
    assert len(lines) == 2
    manifest.write_bytes(b"namespace: \xff")
    assert "is not UTF-8 text" in zael.error("limits", "validate", str(manifest))


def test_a_manifest_must_be_named_once(zael: Zael, manifest: Path) -> None:
    assert "Name one manifest" in zael.error("limits", "validate", code=2)
    both = (str(manifest), "-f", str(manifest))
    assert "Name one manifest" in zael.error("limits", "validate", *both, code=2)
    assert "does not exist" in zael.error("limits", "validate", "missing.yaml", code=2)


def test_a_manifest_is_planned_applied_compared_and_exported(zael: Zael, manifest: Path) -> None:
    file = str(manifest)
    assert zael.json("limits", "apply", file) == {
        "namespace": "default",
        "created": 3,
        "updated": 0,
        "deleted": 0,
        "adopted": 0,
    }
    assert zael.out("limits", "plan", file) == "No changes for namespace 'default'\n"
    assert zael.out("limits", "diff", file) == ""
    manifest.write_text(MANIFEST.replace("100/min", "200/min; burst 300"))
    assert zael.out("limits", "plan", file) == (
        "~ entities.key-1.resources._default_\n"
        "    ~ rpm: 100/min -> 200/min; burst 300\n"
        "Namespace 'default': 0 to create, 1 to update, 0 to delete\n"
    )
    assert zael.run("limits", "diff", file).exit_code == 1
    assert "1 to update" in zael.out("limits", "plan", "-q", file)
    assert "1 updated" in zael.out("limits", "apply", file)
    exported = zael.out("limits", "export")
    assert zael.json("limits", "export")["entities"]["key-1"]["limits"] == {
        "rpm": "200/min; burst 300"
    }
    manifest.write_text(exported)
    assert zael.json("limits", "plan", file)["changes"] == []


def test_deletions_are_confirmed_and_drift_is_refused(zael: Zael, manifest: Path) -> None:
    file = str(manifest)
    zael.out("limits", "apply", file, "--principal", "alice")
    assert zael.json("audit", "list", "-e", "key-1")[0]["principal"] == "alice"
    zael.out("entity", "set-limits", "key-1", "-l", "rpm:7")
    refused = zael.run("limits", "apply", file)
    assert refused.exit_code == 1
    assert "was changed by somebody else" in refused.stderr
    assert "limits apply --force" in refused.stderr
    planned = zael.json("limits", "plan", file)
    assert [change["drift"] for change in planned["changes"]] == ["changed by somebody else"]
    zael.out("limits", "apply", file, "--force")
    manifest.write_text("namespace: default\nsystem: {limits: {rpm: 60}}\n")
    assert "Cancelled" in zael.out("limits", "apply", file, typed="n\n")
    assert zael.json("entity", "get-limits", "key-1")
    assert "1 deleted" in zael.out("limits", "apply", file, "--yes")
    assert zael.json("entity", "get-limits", "key-1") == []


def test_a_question_does_not_mix_with_json_and_needs_an_input_of_its_own(
    zael: Zael, manifest: Path
) -> None:
    zael.out("limits", "apply", str(manifest))
    fewer = "namespace: default\nsystem: {limits: {rpm: 60}}\n"
    manifest.write_text(fewer)
    refused = zael.run("limits", "apply", str(manifest), "--json", typed="n\n")
    assert json.loads(refused.stdout)["deleted"] == 0
    assert "Delete 1 record(s) of limits?" in refused.stderr
    piped = zael.run("limits", "apply", "-", "-q", typed=fewer)
    assert piped.exit_code == 2
    assert "give --yes" in piped.stderr
    assert zael.json("entity", "get-limits", "key-1")
    assert "1 deleted" in zael.out("limits", "apply", "-", "--yes", typed=fewer)


def test_an_invalid_manifest_changes_nothing(zael: Zael, manifest: Path) -> None:
    zael.out("limits", "apply", str(manifest))
    before = zael.json("limits", "export")
    manifest.write_text(MANIFEST + "  key-2: {limits: {rpm: 1}}\n  key-3: {limits: {rpm: 0}}\n")
    assert "capacity must be positive" in zael.error("limits", "apply", str(manifest))
    assert zael.json("limits", "export") == before


def test_a_typed_namespace_counts_for_more_than_that_of_the_manifest(
    zael: Zael, manifest: Path
) -> None:
    applied = zael.json("limits", "apply", str(manifest), "-N", "staging")
    assert applied["namespace"] == "staging"
    assert zael.json("limits", "export", "-N", "staging")["namespace"] == "staging"
    assert "not registered" in zael.error("limits", "plan", str(manifest))


def test_the_printed_schema_is_a_schema(zael: Zael) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(zael.out("limits", "schema")))
