"""A stack as AWS describes it. Nothing here creates or changes anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .._version import __version__
from ..backends.dynamodb.store import DynamoStore
from ..core.deployed import Status
from ..core.exceptions import InfrastructureError, StackOperationError
from ..ports.deployment import VersionRecord
from ..ports.io import Io
from .aws import Aws, error_code, explained
from .options import StackOptions
from .peer_parameters import options_from_parameters
from .table_setup import with_store
from .tags import is_limiter, own_tags, read_tags
from .template import METADATA
from .template_body import parse_template

FUNCTION_OUTPUT = "AggregatorFunctionName"
PROVISIONER_OUTPUT = "ProvisionerFunctionName"
_PLANNED = "REVIEW_IN_PROGRESS"
# Nothing was created, or everything was rolled back: such a stack can only be deleted.
_REMAINS = {"CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"}
# In these states CloudFormation refuses every change, until somebody has done something.
_REMEDIES = {
    "DELETE_FAILED": "zae-limiter delete --name",
    "UPDATE_ROLLBACK_FAILED": "aws cloudformation continue-update-rollback --stack-name",
}


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack is CloudFormation's record of what was deployed."""

    stack_id: str
    name: str
    status: str
    outputs: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_planned(self) -> bool:
        """Whether a creation was planned and never carried out."""
        return self.status == _PLANNED

    @property
    def is_busy(self) -> bool:
        """Whether CloudFormation is at work on it."""
        return self.status.endswith("_IN_PROGRESS") and not self.is_planned

    @property
    def remedy(self) -> str | None:
        """The command without which the stack cannot be changed; None when none is needed."""
        command = _REMEDIES.get(self.status)
        return command and f"{command} {self.name}"

    @property
    def is_remains(self) -> bool:
        """Whether its creation failed, so that it holds nothing."""
        return self.status in _REMAINS


def describe_stack(aws: Aws, stack_name: str) -> Stack | None:
    """Return the stack; None when there is none."""
    with explained(stack_name):
        client = aws["cloudformation"]
        try:
            (told,) = client.describe_stacks(StackName=stack_name)["Stacks"]
        except client.exceptions.ClientError as error:
            if error_code(error) == "ValidationError" and "does not exist" in str(error):
                return None
            raise
    return Stack(
        told["StackId"],
        told["StackName"],
        told["StackStatus"],
        {each["OutputKey"]: each["OutputValue"] for each in told.get("Outputs", ())},
        {each["ParameterKey"]: each["ParameterValue"] for each in told.get("Parameters", ())},
        read_tags(told.get("Tags", ())),
    )


def last_deleted_stack(aws: Aws, stack_name: str) -> Stack | None:
    """Return the limiter's stack of this name that was deleted last, as CloudFormation remembers
    it for 90 days; None when there was none."""
    with explained(stack_name):
        paginator = aws["cloudformation"].get_paginator("list_stacks")
        pages = paginator.paginate(StackStatusFilter=["DELETE_COMPLETE"])
        deleted = [each for page in pages for each in page["StackSummaries"]]
    named = [each for each in deleted if each["StackName"] == stack_name]
    if not named:
        return None
    last = max(named, key=lambda each: each["CreationTime"])
    stack = describe_stack(aws, last["StackId"])
    return stack if stack is not None and is_limiter(stack.tags) else None


def described_table(aws: Aws, stack_name: str) -> dict[str, Any] | None:
    """Return DynamoDB's description of the stack's table; None when there is none."""
    with explained(stack_name):
        client = aws["dynamodb"]
        try:
            table: dict[str, Any] = client.describe_table(TableName=stack_name)["Table"]
        except client.exceptions.ResourceNotFoundException:
            return None
    return table


def read_template(aws: Aws, stack: Stack) -> Mapping[str, Any]:
    """Return the template that a stack was deployed with."""
    with explained(stack.name):
        told = aws["cloudformation"].get_template(StackName=stack.stack_id)
    return parse_template(told["TemplateBody"])


def read_options(aws: Aws, stack: Stack) -> StackOptions:
    """Return the options that a stack was deployed with: its template keeps them, or has them as
    parameters if the existing package made it."""
    body = read_template(aws, stack)
    kept = body.get("Metadata", {}).get(METADATA)
    if kept is not None:
        return StackOptions.from_dict(kept["Options"])
    if not is_limiter(stack.tags):
        raise StackOperationError(stack.name, "it is not a limiter's. Nothing was changed")
    tags = own_tags(stack.tags)
    return replace(options_from_parameters(stack.name, stack.parameters), tags=tags or None)


def read_status(aws: Aws, stack_name: str) -> Status:
    """Return the state of stack, table and versions."""
    stack = describe_stack(aws, stack_name)
    table = described_table(aws, stack_name) or {}
    versions, latency_ms = _probe(aws, stack_name) if table else (None, None)
    outputs = {} if stack is None else stack.outputs
    return Status(
        available=latency_ms is not None,
        latency_ms=latency_ms,
        stack_status=None if stack is None else stack.status,
        table_status=table.get("TableStatus"),
        aggregator_enabled=FUNCTION_OUTPUT in outputs,
        name=stack_name,
        region=aws["cloudformation"].meta.region_name,
        schema_version=None if versions is None else versions.schema_version,
        lambda_version=None if versions is None else versions.lambda_version,
        client_version=__version__,
        table_item_count=table.get("ItemCount"),
        table_size_bytes=table.get("TableSizeBytes"),
        app_role_arn=outputs.get("AppRoleArn"),
        admin_role_arn=outputs.get("AdminRoleArn"),
        readonly_role_arn=outputs.get("ReadOnlyRoleArn"),
    )


def _probe(aws: Aws, stack_name: str) -> tuple[VersionRecord | None, float | None]:
    """Return the version record, and how long a read takes; no time when the table does not
    answer."""

    async def read(store: DynamoStore, io: Io) -> tuple[VersionRecord | None, float]:
        began = time.perf_counter()
        await store.ping()
        latency_ms = 1000 * (time.perf_counter() - began)
        return await store.versions.read(), round(latency_ms, 1)

    try:
        return with_store(aws, stack_name, read)
    except InfrastructureError:
        return None, None
