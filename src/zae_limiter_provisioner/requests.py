"""Requests to the provisioner: a manifest, where it belongs, and what to do with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zae_limiter.core.exceptions import ValidationError
from zae_limiter.core.located import locate_plain
from zae_limiter.core.manifest import Manifest
from zae_limiter.core.manifest_properties import properties_to_document
from zae_limiter.core.manifest_reader import read_manifest
from zae_limiter.core.validation import validate_namespace

ProvisionAction = Literal["plan", "apply", "delete"]
_ID_SUFFIX = "limits-provisioner"


@dataclass(frozen=True, slots=True)
class ProvisionRequest:
    """A request is a manifest, and an action on its namespace. `namespace_id` takes the place of
    the namespace's name if it is given."""

    action: ProvisionAction
    manifest: Manifest
    namespace_id: str | None = None
    force: bool = False
    principal: str | None = None

    @property
    def namespace(self) -> str:
        """The namespace, as the resource's physical id names it."""
        return self.namespace_id or self.manifest.namespace


def physical_id(table_name: str, namespace: str) -> str:
    """Return the id of the resource that stands for the declared limits of a namespace."""
    return f"{table_name}/{namespace}/{_ID_SUFFIX}"


def read_resource_request(event: Mapping[str, Any], table_name: str) -> ProvisionRequest:
    """Read a request of CloudFormation."""
    properties = event["ResourceProperties"]
    _check_table(properties.get("TableName"), table_name)
    namespace_id = _namespace_id(properties.get("NamespaceId"))
    document = properties_to_document(properties)
    if namespace_id is not None:
        document.setdefault("namespace", "default")
    if event["RequestType"] == "Delete":
        # The manifest may be one that could never be applied: only its namespace counts.
        named = Manifest(validate_namespace(document.get("namespace", "")))
        return ProvisionRequest("delete", named, namespace_id, principal=event["StackId"])
    manifest = read_manifest(locate_plain(document), "properties")
    force = str(properties.get("Force", "")).lower() == "true"
    return ProvisionRequest("apply", manifest, namespace_id, force, event["StackId"])


def read_direct_request(event: Mapping[str, Any], table_name: str) -> ProvisionRequest:
    """Read a request of a caller that invokes the Lambda itself: `action`, `manifest`, and
    optionally `table_name`, `namespace_id`, `force` and `principal`."""
    action = event.get("action")
    if action not in ("plan", "apply"):
        raise ValidationError("action", action, "must be plan or apply")
    _check_table(event.get("table_name"), table_name)
    document = event.get("manifest")
    manifest = read_manifest(locate_plain(document), "manifest")
    return ProvisionRequest(
        action,
        manifest,
        _namespace_id(event.get("namespace_id")),
        event.get("force") is True,
        event.get("principal"),
    )


def _check_table(named: object, table_name: str) -> None:
    if named not in (None, table_name):
        raise ValidationError("TableName", named, f"must be {table_name}: this Lambda has no other")


def _namespace_id(value: object) -> str | None:
    if value is None or (isinstance(value, str) and value and "/" not in value):
        return value
    raise ValidationError("NamespaceId", value, "must be the id of a namespace")
