"""The code of a stack's Lambdas is uploaded, and known again by its digest."""

from __future__ import annotations

import base64
import time
from contextlib import suppress
from typing import Any

from .._version import __version__
from ..core.exceptions import StackOperationError
from .aws import Aws, explained
from .lambda_builder import LambdaPackage
from .tags import LAMBDA_VERSION

_POLL_S = 0.5
_POLLS = 240


def aggregator_name(stack_name: str) -> str:
    """Return the name of a stack's aggregator."""
    return f"{stack_name}-aggregator"


def provisioner_name(stack_name: str) -> str:
    """Return the name of the Lambda that applies a stack's declared limits."""
    return f"{stack_name}-limits-provisioner"


def upload_aggregator(
    aws: Aws, stack_name: str, package: LambdaPackage, *, wait: bool
) -> dict[str, Any]:
    """Upload the aggregator's code, and wait until records are delivered to it."""
    uploaded = upload_code(aws, stack_name, aggregator_name(stack_name), package, wait=wait)
    with explained(stack_name):
        is_ready = wait and _wait_for_mapping(aws["lambda"], stack_name)
    return {**uploaded, "esm_ready": is_ready}


def upload_code(
    aws: Aws, stack_name: str, name: str, package: LambdaPackage, *, wait: bool
) -> dict[str, Any]:
    """Upload the code of a function, unless the function has it."""
    with explained(stack_name):
        client = aws["lambda"]
        arn, is_new = _put_code(client, stack_name, name, package, wait=wait)
        if is_new:
            client.tag_resource(Resource=arn, Tags={LAMBDA_VERSION: __version__})
    return {
        "function_arn": arn,
        "code_sha256": package.digest,
        "status": "deployed" if is_new else "unchanged",
        "size_bytes": len(package.content),
        "version": __version__,
    }


def _put_code(
    client: Any, stack_name: str, name: str, package: LambdaPackage, *, wait: bool
) -> tuple[str, bool]:
    """Bring the code to the function, and return its ARN and whether it had other code. Lambda
    refuses code while it is busy with an earlier update, perhaps another deployer's."""
    digest = base64.b64encode(bytes.fromhex(package.digest)).decode()
    is_new = False
    for _ in range(_POLLS):
        told = client.get_function_configuration(FunctionName=name)
        state, has_it = told.get("LastUpdateStatus", "Successful"), told["CodeSha256"] == digest
        if is_new and state == "Failed":
            reason = told.get("LastUpdateStatusReason", "Lambda does not say why")
            raise StackOperationError(stack_name, f"the code of {name} was not taken: {reason}")
        if has_it and state != "InProgress":
            return told["FunctionArn"], is_new
        if not has_it and state != "InProgress":
            with suppress(client.exceptions.ResourceConflictException):
                client.update_function_code(FunctionName=name, ZipFile=package.content)
                is_new = True
        if is_new and not wait:
            return told["FunctionArn"], True
        time.sleep(_POLL_S)
    raise StackOperationError(stack_name, f"the code of {name} is not in place after two minutes")


def starting_position(aws: Aws, stack_name: str) -> str | None:
    """Return where the mapping that exists began to read; it cannot be changed later."""
    with explained(stack_name):
        return next((m.get("StartingPosition") for m in _mappings(aws["lambda"], stack_name)), None)


def _mappings(client: Any, stack_name: str) -> list[dict[str, Any]]:
    name = aggregator_name(stack_name)
    found: list[dict[str, Any]] = client.list_event_source_mappings(FunctionName=name)[
        "EventSourceMappings"
    ]
    return found


def _wait_for_mapping(client: Any, stack_name: str) -> bool:
    for _ in range(_POLLS):
        mappings = _mappings(client, stack_name)
        if mappings and all(mapping["State"] == "Enabled" for mapping in mappings):
            return True
        time.sleep(_POLL_S)
    return False
