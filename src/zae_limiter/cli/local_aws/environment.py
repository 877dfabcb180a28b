"""The environment of a program that is to use the local server, and no other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, get_args

from ...backends.dynamodb.url import dynamodb_url

Format = Literal["eval", "direnv", "powershell"]
FORMATS = get_args(Format)
LOCAL_REGION = "us-east-1"
# Nobody's credentials: AWS refuses them, and a local server takes any.
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIALOCALLOCALLOCAL0", "AWS_SECRET_ACCESS_KEY": "local"}
# Names that would lead a program elsewhere, or to somebody's real credentials.
_MISLEADING = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_DYNAMODB", "ZAEL_NAMESPACE")


def local_variables(port: int, stack: str) -> dict[str, str]:
    """Return the variables that lead a program to the server."""
    endpoint_url = local_endpoint(port)
    return {
        "AWS_ENDPOINT_URL": endpoint_url,
        **_CREDENTIALS,
        "AWS_DEFAULT_REGION": LOCAL_REGION,
        "AWS_REGION": LOCAL_REGION,
        "ZAEL_STACK": stack,
        "ZAEL_URL": dynamodb_url(stack, LOCAL_REGION, endpoint_url),
    }


def local_endpoint(port: int) -> str:
    """Return the endpoint of a server on this machine."""
    return f"http://127.0.0.1:{port}"


def child_environment(port: int, stack: str) -> dict[str, str]:
    """Return the whole environment of a child process that works on the server."""
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return {**kept, **local_variables(port, stack)}


def variable_lines(variables: Mapping[str, str], form: Format) -> list[str]:
    """Return the lines that set variables in a shell."""
    if form == "powershell":
        return [f'$env:{name} = "{value}"' for name, value in variables.items()]
    return [f"export {name}='{value}'" for name, value in variables.items()]
