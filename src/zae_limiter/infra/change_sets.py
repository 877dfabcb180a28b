"""Changes of a stack are planned by CloudFormation, looked at, and only then carried out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..core.exceptions import StackOperationError
from .aws import error_code
from .cloudformation import TABLE
from .template import MAX_TEMPLATE_BYTES, template_text

ChangeKind = Literal["CREATE", "UPDATE"]
_POLL_S = 0.3
_POLLS = 400
_UNCHANGED = " Nothing was changed"
_OVERTAKEN = ("does not exist", "already exists", "can not be updated", "cannot be updated")
_OVERTAKEN_CODES = ("AlreadyExistsException", "ChangeSetNotFound", "InvalidChangeSetStatus")
_NOTHING = ("didn't contain changes", "no updates are to be performed")


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A planned change is what CloudFormation would do to one resource."""

    action: str
    logical_id: str
    resource_type: str
    replacement: str = "False"

    @property
    def loses_data(self) -> bool:
        """Whether the table would be removed, or another put in its place."""
        return self.logical_id == TABLE and (
            self.action == "Remove" or self.replacement in ("True", "Conditional")
        )


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """A change set that can be carried out."""

    arn: str
    stack_id: str
    changes: tuple[PlannedChange, ...]


def plan_changes(
    client: Any,
    stack_name: str,
    kind: ChangeKind,
    template: Mapping[str, Any],
    tags: Mapping[str, str],
) -> ChangeSet | None:
    """Return the changes that lead to the template; None when there are none to make.

    A plan that would lose the table's data is refused, and nothing is changed.
    """
    text = template_text(template)
    if len(text.encode()) > MAX_TEMPLATE_BYTES:
        raise StackOperationError(
            stack_name, f"the template has more than {MAX_TEMPLATE_BYTES:,} bytes"
        )
    made = client.create_change_set(
        StackName=stack_name,
        ChangeSetName=f"zae-limiter-{secrets.token_hex(8)}",
        ChangeSetType=kind,
        TemplateBody=text,
        Capabilities=["CAPABILITY_NAMED_IAM"],
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
    )
    answer = _planned(client, made["Id"])
    if answer["Status"] != "CREATE_COMPLETE":
        _drop(client, made)
        _explain_failure(stack_name, answer)
        return None
    changes = tuple(map(_change, answer["Changes"]))
    if any(change.loses_data for change in changes):
        _drop(client, made)
        raise StackOperationError(
            stack_name, "this would remove or replace the table with all its data." + _UNCHANGED
        )
    return ChangeSet(made["Id"], made["StackId"], changes)


def execute(client: Any, change_set: ChangeSet) -> None:
    """Begin to carry out the changes."""
    client.execute_change_set(ChangeSetName=change_set.arn)


def _planned(client: Any, arn: str) -> dict[str, Any]:
    """Wait until the changes are planned, and return all pages of the plan as one."""
    for _ in range(_POLLS):
        answer: dict[str, Any] = client.describe_change_set(ChangeSetName=arn)
        if answer["Status"] in ("CREATE_COMPLETE", "FAILED"):
            break
        time.sleep(_POLL_S)
    page = answer
    while "NextToken" in page:
        page = client.describe_change_set(ChangeSetName=arn, NextToken=page["NextToken"])
        answer["Changes"] += page["Changes"]
    return answer


def _drop(client: Any, made: Mapping[str, str]) -> None:
    """Leave no plan behind, and no stack that only this one had planned."""
    client.delete_change_set(ChangeSetName=made["Id"])
    stack_id = made["StackId"]
    (stack,) = client.describe_stacks(StackName=stack_id)["Stacks"]
    if stack["StackStatus"] != "REVIEW_IN_PROGRESS":
        return
    if not client.list_change_sets(StackName=stack_id)["Summaries"]:
        client.delete_stack(StackName=stack_id)


def was_overtaken(error: StackOperationError) -> bool:
    """Whether another deployer changed the stack between a plan and its execution."""
    code, said = error_code(error.__cause__), str(error.__cause__)
    if code in _OVERTAKEN_CODES:
        return True
    return code == "ValidationError" and any(text in said for text in _OVERTAKEN)


def _explain_failure(stack_name: str, answer: dict[str, Any]) -> None:
    """Raise the reason, unless it is that there is nothing to do."""
    reason: str = answer.get("StatusReason") or f"it stays {answer['Status']}"
    if not any(text in reason.lower() for text in _NOTHING):
        raise StackOperationError(
            stack_name, f"its changes cannot be planned: {reason}.{_UNCHANGED}"
        )


def _change(told: dict[str, Any]) -> PlannedChange:
    change = told["ResourceChange"]
    return PlannedChange(
        change["Action"],
        change["LogicalResourceId"],
        change["ResourceType"],
        change.get("Replacement") or "False",
    )
