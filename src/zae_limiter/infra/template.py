"""The CloudFormation template of a stack, as a value and as text.

The template is made for its options: parts that were not asked for are not in it, and there are no
parameters. Its metadata keep the options, so that an upgrade goes on from them. Its text is JSON
without blanks when it is deployed, because CloudFormation takes 51,200 bytes at most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .._version import __version__
from .aggregator_resources import aggregator_resources
from .alarms import alarm_resources
from .cloudformation import TABLE, Resources
from .iam_resources import iam_resources
from .options import StackOptions
from .outputs import stack_outputs
from .provisioner_resources import provisioner_resources
from .table_resource import table_resource, table_shape

METADATA = "ZaeLimiter"
MAX_TEMPLATE_BYTES = 51_200
# Records of the last day are counted too. Those that were counted before change nothing.
STARTING_POSITION = "TRIM_HORIZON"


def build_template(
    options: StackOptions,
    shape: Mapping[str, Any] | None = None,
    starting_position: str = STARTING_POSITION,
    descriptions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the template.

    What cannot be changed in a stack that exists is given: the keys and indexes of its table as
    `shape`, where its Lambda began to read, and the `descriptions` of its policies.
    """
    resources = _resources(options, shape or table_shape(), starting_position, descriptions or {})
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "zae-limiter: one table for distributed token-bucket rate limits",
        "Metadata": {METADATA: {"Version": __version__, "Options": options.to_dict()}},
        "Resources": resources,
        "Outputs": stack_outputs(options, resources),
    }


def _resources(
    options: StackOptions,
    shape: Mapping[str, Any],
    starting_position: str,
    descriptions: Mapping[str, str],
) -> Resources:
    resources = {TABLE: table_resource(options, shape)}
    if options.deploys_aggregator_lambda:
        resources |= aggregator_resources(options, starting_position)
    if options.deploys_provisioner_lambda:
        resources |= provisioner_resources(options)
    return resources | iam_resources(options, descriptions) | alarm_resources(options)


def template_text(template: Mapping[str, Any]) -> str:
    """Return the template as it is deployed."""
    return json.dumps(template, separators=(",", ":"), sort_keys=True)
