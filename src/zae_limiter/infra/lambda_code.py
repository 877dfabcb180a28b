"""The aggregator's code is uploaded to its function, and known again by its digest."""

from __future__ import annotations

import base64
import time
from typing import Any

from .._version import __version__
from ..core.exceptions import StackOperationError
from .aws import Aws, explained
from .lambda_builder import LambdaPackage
from .tags import LAMBDA_VERSION

_POLL_S = 0.5
_POLLS = 240


def function_name(stack_name: str) -> str:
    """Return the name of a stack's aggregator."""
    return f"{stack_name}-aggregator"


def upload_code(aws: Aws, stack_name: str, package: LambdaPackage, *, wait: bool) -> dict[str, Any]:
    """Upload the code, unless the function has it, and wait until records are delivered to it."""
    name = function_name(stack_name)
    digest = base64.b64encode(bytes.fromhex(package.digest)).decode()
    with explained(stack_name):
        client = aws["lambda"]
        known = client.get_function_configuration(FunctionName=name)
        is_new = known["CodeSha256"] != digest
        if is_new:
            client.update_function_code(FunctionName=name, ZipFile=package.content)
            client.tag_resource(Resource=known["FunctionArn"], Tags={LAMBDA_VERSION: __version__})
        if wait:
            _wait_for_code(client, stack_name, name, digest)
        is_ready = wait and _wait_for_mapping(client, stack_name, name)
    return {
        "function_arn": known["FunctionArn"],
        "code_sha256": package.digest,
        "status": "deployed" if is_new else "unchanged",
        "size_bytes": len(package.content),
        "version": __version__,
        "esm_ready": is_ready,
    }


def starting_position(aws: Aws, stack_name: str) -> str | None:
    """Return where the mapping that exists began to read; it cannot be changed later."""
    with explained(stack_name):
        return next((m.get("StartingPosition") for m in _mappings(aws["lambda"], stack_name)), None)


def _mappings(client: Any, stack_name: str) -> list[dict[str, Any]]:
    name = function_name(stack_name)
    found: list[dict[str, Any]] = client.list_event_source_mappings(FunctionName=name)[
        "EventSourceMappings"
    ]
    return found


def _wait_for_code(client: Any, stack_name: str, name: str, digest: str) -> None:
    for _ in range(_POLLS):
        told = client.get_function_configuration(FunctionName=name)
        state = told.get("LastUpdateStatus", "Successful")
        if state == "Failed":
            reason = told.get("LastUpdateStatusReason", "Lambda does not say why")
            raise StackOperationError(stack_name, f"the code of {name} was not taken: {reason}")
        if state == "Successful" and told["CodeSha256"] == digest:
            return
        time.sleep(_POLL_S)
    raise StackOperationError(stack_name, f"the code of {name} is not in place after two minutes")


def _wait_for_mapping(client: Any, stack_name: str, name: str) -> bool:
    for _ in range(_POLLS):
        mappings = _mappings(client, stack_name)
        if mappings and all(mapping["State"] == "Enabled" for mapping in mappings):
            return True
        time.sleep(_POLL_S)
    return False
