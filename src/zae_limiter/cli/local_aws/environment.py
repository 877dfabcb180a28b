"""The environment of a program that is to use the local server, and no other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from ...backends.dynamodb.url import dynamodb_url

Format = Literal["eval", "direnv", "powershell"]
FORMATS = get_args(Format)
LOCAL_REGION = "us-east-1"
# Nobody's credentials: AWS refuses them, and a local server takes any.
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIALOCALLOCALLOCAL0", "AWS_SECRET_ACCESS_KEY": "local"}
# Names that would lead a program elsewhere, or to somebody's real credentials.
_MISLEADING = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
)
_ENDPOINT_OF_SERVICE = "AWS_ENDPOINT_URL_"
_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_PAST_PROXIES = ("NO_PROXY", "no_proxy")
_HOST = "127.0.0.1"


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
        **_past_proxies(),
    }


def misleading_names() -> list[str]:
    """Return the variables to take away: those that outweigh the others, whether set or not, and
    endpoints of single services that are set."""
    services = [name for name in os.environ if name.startswith(_ENDPOINT_OF_SERVICE)]
    return [*_MISLEADING, *sorted(services)]


def _past_proxies() -> dict[str, str]:
    """Return the variables that lead past a proxy, if one is set: it cannot reach this machine."""
    if not any(os.environ.get(name) for name in _PROXIES):
        return {}
    known = {name: os.environ.get(name, "") for name in _PAST_PROXIES}
    return {
        name: hosts if _HOST in hosts.split(",") else ",".join(filter(None, [hosts, _HOST]))
        for name, hosts in known.items()
    }


def local_endpoint(port: int) -> str:
    """Return the endpoint of a server on this machine."""
    return f"http://{_HOST}:{port}"


def child_environment(port: int, stack: str) -> dict[str, str]:
    """Return the whole environment of a child process that works on the server."""
    dropped = {*misleading_names(), "ZAEL_NAMESPACE"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, **local_variables(port, stack)}


def variable_lines(
    variables: Mapping[str, str], form: Format, misleading: Iterable[str] = ()
) -> list[str]:
    """Return the lines that set variables in a shell, and take misleading ones away."""
    if form == "powershell":
        taken = [f"Remove-Item Env:{name} -ErrorAction SilentlyContinue" for name in misleading]
        return [*taken, *(f'$env:{name} = "{value}"' for name, value in variables.items())]
    taken = [f"unset {name}" for name in misleading]
    return [*taken, *(f"export {name}='{value}'" for name, value in variables.items())]
