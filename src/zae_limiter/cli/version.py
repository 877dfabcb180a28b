"""`zae-limiter version` and `check` compare this client with what is deployed."""

from __future__ import annotations

import sys
from typing import NamedTuple

import click

from .._version import __version__
from ..core.versions import CURRENT_SCHEMA_VERSION, is_on_the_way
from ..flows.admin.versions import compare
from ..ports.deployment import DeployedStore, VersionRecord
from ..ports.repository_protocol import RepositoryProtocol
from .options import examples, json_option, registry_options
from .output import print_fields, print_json
from .target import Target


class VersionFinding(NamedTuple):
    """The versions of a store, and the advice that follows. A store without a table has none."""

    record: VersionRecord | None
    status: str
    advice: str

    @property
    def is_usable(self) -> bool:
        return self.status.startswith("COMPATIBLE")


def _find(target: Target) -> VersionFinding:
    with target.registry() as registry:
        return judge_versions(registry.scope.store)


def judge_versions(store: RepositoryProtocol) -> VersionFinding:
    """Return whether this client can use an open store, and the advice that follows."""
    if not isinstance(store, DeployedStore):
        return VersionFinding(None, "COMPATIBLE", "")
    record = store.opened_version
    if record is None:
        return VersionFinding(
            None, "NOT INITIALIZED", "The table has no version record: run `zae-limiter deploy`."
        )
    result = compare(record).result
    advice = f"{result.message[:1].upper()}{result.message[1:]}." if result.message else ""
    if not result.is_compatible:
        return VersionFinding(record, "INCOMPATIBLE", advice)
    if result.requires_lambda_update:
        return VersionFinding(record, "COMPATIBLE (Lambda update available)", advice)
    if is_on_the_way(record.schema_version):
        advice = (
            "Buckets of an older shape are moved when they are used, and all others by"
            " `zae-limiter migrate`. Clients of older versions must stay stopped."
        )
        return VersionFinding(record, "COMPATIBLE (migration under way)", advice)
    return VersionFinding(record, "COMPATIBLE", advice)


def _versions(record: VersionRecord | None) -> dict[str, str | None]:
    return {
        "client_version": __version__,
        "client_schema_version": CURRENT_SCHEMA_VERSION,
        "schema_version": None if record is None else record.schema_version,
        "lambda_version": None if record is None else record.lambda_version,
        "client_min_version": None if record is None else record.client_min_version,
    }


@click.command(epilog=examples("version --name my-stack", on_a_store=False))
@json_option
@registry_options
def version(as_json: bool, target: Target) -> None:
    """Show the versions of the client and of what is deployed.

    The package and the schema of the table have versions of their own. The exit code is 1 when the
    client cannot use the table.
    """
    found = _find(target)
    known = _versions(found.record)
    if as_json:
        print_json({**known, "status": found.status, "advice": found.advice})
    else:
        print_fields(
            "Versions:",
            {
                "Client": known["client_version"],
                "Schema of the client": known["client_schema_version"],
                "Schema of the table": known["schema_version"],
                "Lambda": known["lambda_version"],
                "Oldest client let in": known["client_min_version"],
                "Status": found.status,
            },
        )
        _print_advice(found)
    sys.exit(0 if found.is_usable else 1)


@click.command(epilog=examples("check --name my-stack", on_a_store=False))
@json_option
@registry_options
def check(as_json: bool, target: Target) -> None:
    """Check whether this client can use the store.

    The exit code is 1 when it cannot; the advice says what to do first.
    """
    found = _find(target)
    if as_json:
        print_json({"result": found.status, "advice": found.advice, **_versions(found.record)})
    else:
        click.echo(f"Result: {found.status}")
        _print_advice(found)
    sys.exit(0 if found.is_usable else 1)


def _print_advice(found: VersionFinding) -> None:
    if found.advice:
        click.echo(found.advice)
