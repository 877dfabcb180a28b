"""`zae-limiter iam-policy` prints policies for accounts whose roles are managed elsewhere."""

from __future__ import annotations

from typing import Any

import click

from ..core.validation import validate_stack_name
from ..infra.arns import StackArns
from ..infra.deployer_policy import deployer_document
from ..infra.iam_resources import PURPOSES
from ..infra.options import StackOptions
from ..infra.policies import aggregator_document, policy_documents, provisioner_document
from .options import examples
from .output import print_json
from .stack_options import deployment_options
from .stack_place import name_option

_OTHERS = ("aggregator", "provisioner", "deployer")


@click.command(
    "iam-policy",
    epilog=examples(
        "iam-policy acq --name my-app",
        "iam-policy deployer --name my-app --account 123456789012",
        on_a_store=False,
    ),
)
@click.argument("component", type=click.Choice([*PURPOSES, *_OTHERS]))
@name_option(named=False)
@click.option("--region", default="*", show_default=True, help="The AWS region.")
@click.option("--account", default="*", show_default=True, help="The AWS account.")
@click.option("--partition", default="aws", show_default=True, help="The AWS partition.")
@click.option("--json", "as_json", is_flag=True, help="JSON, which is what it prints anyway.")
@deployment_options
def iam_policy(
    component: str,
    name: str,
    region: str,
    account: str,
    partition: str,
    as_json: bool,
    changes: dict[str, Any],
) -> None:
    """Print an IAM policy of a stack, as JSON.

    acq, full, read and their ns- twins are for clients of all namespaces and of one, aggregate for
    `zae-limiter aggregate`, aggregator and provisioner for the Lambdas, deployer for whoever
    deploys.
    """
    arns = StackArns(validate_stack_name(name), region, account, partition)
    options = StackOptions(**changes)
    if component == "deployer":
        print_json(deployer_document(arns, options))
    elif component == "aggregator":
        archives, traces = options.enable_audit_archival, options.enable_tracing
        print_json(aggregator_document(arns.places, archives=archives, traces=traces))
    elif component == "provisioner":
        print_json(provisioner_document(arns.places, traces=options.enable_tracing))
    else:
        print_json(policy_documents(arns.places)[component])
