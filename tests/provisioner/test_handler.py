"""The provisioner's handler, called as CloudFormation calls it, on a real table.

CloudFormation's part is a web server that takes the answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.servers.tables import OwnTable
from zae_limiter import Limit, SyncRepository, ValidationError
from zae_limiter_provisioner import handler
from zae_limiter_provisioner.handler import opened
from zae_limiter_provisioner.response import Outcome

STACK = "arn:aws:cloudformation:us-east-1:123456789012:stack/limits/1"
CONTEXT = SimpleNamespace(get_remaining_time_in_millis=lambda: 300_000)
RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 500)
PROPERTIES = {
    "Namespace": "default",
    "System": {"Limits": {"rpm": {"Capacity": "60"}}},
    "Resources": {"gpt-4": {"Limits": {"tpm": {"Capacity": "500"}}}},
    "Entities": {"acme": {"Name": "Acme", "Cascade": "false"}},
}


class Answers(ThreadingHTTPServer):
    """The place of the pre-signed URL. It may fail at first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken: list[dict[str, Any]] = []
        self.failures = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/answer"


class _Taking(BaseHTTPRequestHandler):
    server: Answers

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        # A pre-signed URL is signed for a request without a content type.
        is_signed = not self.headers["Content-Type"]
        if self.server.failures:
            self.server.failures -= 1
            is_signed = False
        self.send_response(200 if is_signed else 503)
        self.end_headers()
        if is_signed:
            self.server.taken.append(json.loads(body))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answers() -> Iterator[Answers]:
    with Answers() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class CloudFormation:
    """CloudFormation calls the handler, and remembers the id of the resource."""

    def __init__(self, table: OwnTable, answers: Answers) -> None:
        self.table = table
        self.answers = answers
        self.known_id: str | None = None

    def event(self, kind: str, properties: dict[str, Any]) -> dict[str, Any]:
        known = {} if self.known_id is None else {"PhysicalResourceId": self.known_id}
        return {
            "RequestType": kind,
            "ResponseURL": self.answers.url,
            "StackId": STACK,
            "RequestId": "request-1",
            "LogicalResourceId": "Limits",
            "ResourceType": "Custom::ZaeLimiterLimits",
            "ResourceProperties": {
                "ServiceToken": "arn",
                "TableName": self.table.name,
                **properties,
            },
            **known,
        }

    def call(self, kind: str, properties: dict[str, Any], context: Any = CONTEXT) -> dict[str, Any]:
        handler.on_event(self.event(kind, properties), context)
        answer = self.answers.taken[-1]
        assert answer["StackId"] == STACK
        assert (answer["RequestId"], answer["LogicalResourceId"]) == ("request-1", "Limits")
        self.known_id = answer["PhysicalResourceId"]
        return answer

    def succeed(self, kind: str, properties: dict[str, Any]) -> tuple[int, ...]:
        answer = self.call(kind, properties)
        assert answer["Status"] == "SUCCESS", answer["Reason"]
        names = ("Created", "Updated", "Deleted", "Adopted")
        return tuple(answer["Data"].get(name, 0) for name in names)

    def fail(self, kind: str, properties: dict[str, Any], context: Any = CONTEXT) -> str:
        answer = self.call(kind, properties, context)
        assert answer["Status"] == "FAILED"
        reason: str = answer["Reason"]
        return reason


@pytest.fixture
def cloudformation(
    table: OwnTable, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CloudFormation]:
    monkeypatch.setenv("TABLE_NAME", table.name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", table.server.url)
    monkeypatch.setenv("AWS_REGION", table.server.region)
    monkeypatch.setattr("zae_limiter_provisioner.response._WAITS_S", (0.0, 0.0, 0.0))
    opened.cache_clear()
    yield CloudFormation(table, answers)
    opened.cache_clear()


@pytest.fixture
def repository(table: OwnTable) -> Iterator[SyncRepository]:
    with SyncRepository.open(url=table.url) as made:
        yield made


def limits(repository: SyncRepository) -> tuple[list[Limit], list[Limit]]:
    system, _ = repository.get_system_defaults()
    return system, repository.get_resource_defaults("gpt-4")


def test_a_resource_lives_from_create_to_delete(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    table = cloudformation.table.name
    assert cloudformation.succeed("Create", PROPERTIES) == (3, 0, 0, 0)
    assert cloudformation.known_id == f"{table}/default/limits-provisioner"
    assert limits(repository) == ([RPM], [TPM])
    (event, *_) = repository.get_audit_events("$SYSTEM")
    assert event.principal == STACK
    fewer = {**PROPERTIES, "System": {"Limits": {"rpm": "61/min"}}, "Resources": {}}
    assert cloudformation.succeed("Update", fewer) == (0, 1, 1, 0)
    assert limits(repository) == ([Limit.per_minute("rpm", 61)], [])
    assert cloudformation.known_id == f"{table}/default/limits-provisioner"
    assert cloudformation.succeed("Delete", fewer) == (0, 0, 1, 0)
    assert limits(repository) == ([], [])
    assert repository.get_entity("acme") is not None


def test_a_request_that_is_delivered_twice_changes_nothing_more(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    assert cloudformation.succeed("Create", PROPERTIES) == (3, 0, 0, 0)
    assert cloudformation.succeed("Create", PROPERTIES) == (0, 0, 0, 0)
    assert len(repository.get_audit_events("$SYSTEM")) == 1
    assert cloudformation.succeed("Delete", PROPERTIES) == (0, 0, 2, 0)
    assert cloudformation.succeed("Delete", PROPERTIES) == (0, 0, 0, 0)


def test_a_bad_manifest_fails_with_its_problems_and_changes_nothing(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    bad = {**PROPERTIES, "System": {"Limits": {"rpm": {"Capacity": "0"}, "tpm": "fast"}}}
    reason = cloudformation.fail("Create", bad)
    assert "system.limits.rpm: capacity must be positive" in reason
    assert "system.limits.tpm: 'fast' is not a rate" in reason
    assert limits(repository) == ([], [])
    for broken in ({"Namespace": "a#b"}, {}, {**PROPERTIES, "TableName": "another"}):
        assert cloudformation.fail("Create", broken)


def test_the_deletion_after_a_failed_creation_leaves_what_was_there(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    assert cloudformation.succeed("Create", PROPERTIES) == (3, 0, 0, 0)
    cloudformation.known_id = None
    cloudformation.fail("Create", {**PROPERTIES, "System": {"Limits": {}}})
    assert cloudformation.known_id is not None
    assert cloudformation.succeed("Delete", PROPERTIES) == (0, 0, 0, 0)
    # CloudFormation makes an id of its own if no answer came.
    cloudformation.known_id = "limits-Limits-1ABC"
    assert cloudformation.succeed("Delete", {"Namespace": "#"}) == (0, 0, 0, 0)
    assert limits(repository) == ([RPM], [TPM])


def test_records_that_others_changed_are_refused_and_outlive_a_deletion(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    cloudformation.succeed("Create", PROPERTIES)
    repository.set_system_defaults([TPM])
    known = cloudformation.known_id
    changed = {**PROPERTIES, "Resources": {"gpt-4": {"Limits": {"tpm": "9"}}}}
    assert "system: was changed by somebody else" in cloudformation.fail("Update", changed)
    assert cloudformation.known_id == known
    assert limits(repository) == ([TPM], [TPM])
    assert cloudformation.succeed("Delete", PROPERTIES) == (0, 0, 1, 0)
    assert limits(repository) == ([TPM], [])
    assert "system: was set by somebody else" in cloudformation.fail("Create", PROPERTIES)
    assert cloudformation.succeed("Create", {**PROPERTIES, "Force": "true"}) == (1, 1, 0, 1)
    assert limits(repository) == ([RPM], [TPM])


def test_another_namespace_is_another_resource(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    cloudformation.succeed("Create", PROPERTIES)
    first = cloudformation.known_id
    assert cloudformation.succeed("Update", {**PROPERTIES, "Namespace": "other"}) == (3, 0, 0, 0)
    assert cloudformation.known_id == f"{cloudformation.table.name}/other/limits-provisioner"
    cloudformation.known_id = first
    assert cloudformation.succeed("Delete", PROPERTIES) == (0, 0, 2, 0)
    with SyncRepository.connect("other", url=cloudformation.table.url) as other:
        assert limits(other) == ([RPM], [TPM])


def test_a_namespace_may_be_named_by_its_id(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    by_id = {k: v for k, v in PROPERTIES.items() if k != "Namespace"}
    by_id["NamespaceId"] = repository.namespace_id
    assert cloudformation.succeed("Create", by_id) == (3, 0, 0, 0)
    assert limits(repository) == ([RPM], [TPM])
    assert cloudformation.succeed("Delete", by_id) == (0, 0, 2, 0)
    cloudformation.known_id = None
    assert "nowhere" in cloudformation.fail("Create", {**by_id, "NamespaceId": "nowhere"})
    gone = {**PROPERTIES, "Namespace": "never-there"}
    cloudformation.known_id = f"{cloudformation.table.name}/never-there/limits-provisioner"
    assert cloudformation.succeed("Delete", gone) == (0, 0, 0, 0)


def test_time_that_ends_is_told_and_the_next_request_makes_the_rest(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    short = SimpleNamespace(get_remaining_time_in_millis=lambda: 10_000)
    reason = cloudformation.fail("Create", PROPERTIES, short)
    assert "the time is over after 1 of 3 changes" in reason
    assert cloudformation.succeed("Create", PROPERTIES) == (2, 0, 0, 0)
    assert limits(repository) == ([RPM], [TPM])


def test_an_outage_of_the_store_is_an_answer(
    cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    assert "Connection refused" in cloudformation.fail("Create", PROPERTIES)


def test_an_answer_is_sent_again_if_its_place_fails(
    cloudformation: CloudFormation, answers: Answers
) -> None:
    answers.failures = 3
    assert cloudformation.succeed("Create", PROPERTIES) == (3, 0, 0, 0)
    assert len(answers.taken) == 1


@pytest.mark.parametrize("text", ["é", '"', "\n", "\x00", "x"])
def test_an_answer_fits_into_the_bytes_that_cloudformation_takes(text: str) -> None:
    event = {"StackId": STACK, "RequestId": "r" * 100, "LogicalResourceId": "L" * 255}
    body = Outcome("i" * 300, text * 5_000).body(event)
    assert len(body) <= 4096
    assert json.loads(body)["Status"] == "FAILED"


def test_a_caller_of_its_own_plans_and_applies(
    cloudformation: CloudFormation, repository: SyncRepository
) -> None:
    call = {
        "action": "plan",
        "table_name": cloudformation.table.name,
        "manifest": {"namespace": "default", "system": {"limits": {"rpm": 60}}},
    }
    planned = handler.on_event(call, CONTEXT)
    assert planned["changes"] == [{"action": "create", "path": "system", "drift": None}]
    assert limits(repository) == ([], [])
    applied = handler.on_event({**call, "action": "apply", "principal": "alice"}, CONTEXT)
    assert (applied["status"], applied["Created"]) == ("applied", 1)
    assert repository.get_audit_events("$SYSTEM")[0].principal == "alice"
    with pytest.raises(ValidationError, match="must be plan or apply"):
        handler.on_event({**call, "action": "destroy"}, CONTEXT)
