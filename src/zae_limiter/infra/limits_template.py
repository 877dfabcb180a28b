"""The CloudFormation template of declared limits: one resource, which the provisioner of a
limiter's stack looks after."""

from __future__ import annotations

from typing import Any

from ..core.manifest import Manifest
from ..core.manifest_properties import manifest_to_properties
from .outputs import PROVISIONER_ARN

RESOURCE_TYPE = "Custom::ZaeLimiterLimits"


def build_limits_template(stack_name: str, manifest: Manifest, *, force: bool) -> dict[str, Any]:
    """Return the template. `force`: records that others have changed are overwritten."""
    properties = {
        "ServiceToken": {"Fn::ImportValue": f"{stack_name}-{PROVISIONER_ARN}"},
        "TableName": stack_name,
        **({"Force": True} if force else {}),
        **manifest_to_properties(manifest),
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Declared limits of the limiter {stack_name}",
        "Resources": {"Limits": {"Type": RESOURCE_TYPE, "Properties": properties}},
    }
