"""A stack of the existing package: its own template, as its command line prints it."""

from __future__ import annotations

import os
import subprocess
from functools import cache

from tests.support.aggregators import wait_until
from tests.support.peer.environment import VERSION, python
from tests.support.stacks import LocalAws

# The local server cannot evaluate this part of a condition, which only a boundary needs.
_NOT_EVALUATED = "!Select [0, !Split [':', !Ref PermissionBoundary]]"


@cache
def peer_template() -> str:
    """Return the template in YAML, with parameters."""
    code = "from zae_limiter.cli import cli; cli(['cfn-template'])"
    hidden = ("PYTHONPATH", "ZAEL_STACK", "ZAEL_NAMESPACE")
    environment = {name: text for name, text in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [python(), "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert _NOT_EVALUATED in done.stdout
    return done.stdout


def deploy_peer_stack(aws: LocalAws, parameters: dict[str, str], tags: dict[str, str]) -> None:
    """Create a stack as the package does: its template, parameters and tags."""
    own = {
        "ManagedBy": "zae-limiter",
        "zae-limiter:name": aws.stack,
        "zae-limiter:type": "limiter",
        "zae-limiter:version": VERSION,
    }
    client = aws.client("cloudformation")
    client.create_stack(
        StackName=aws.stack,
        TemplateBody=peer_template().replace(_NOT_EVALUATED, "!Ref PermissionBoundary"),
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
        Capabilities=["CAPABILITY_NAMED_IAM"],
        Tags=[{"Key": key, "Value": value} for key, value in {**tags, **own}.items()],
    )

    def is_created() -> bool:
        (stack,) = client.describe_stacks(StackName=aws.stack)["Stacks"]
        return bool(stack["StackStatus"] == "CREATE_COMPLETE")

    wait_until(is_created, "the stack of the existing package is created")
