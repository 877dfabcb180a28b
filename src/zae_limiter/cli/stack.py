"""`zae-limiter deploy`, `upgrade`, `delete`, `status` and `list` manage stacks on AWS."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from ..core.deployed import LimiterInfo, Status
from ..core.exceptions import InfrastructureNotFoundError
from ..deployed import find_deployed
from ..infra.options import StackOptions
from ..infra.stack_events import OnEvent
from .aggregate import INTERRUPTED_CODE
from .options import examples, json_option, yes_option
from .output import print_fields, print_json, print_table
from .stack_options import deployment_options
from .stack_place import StackPlace, endpoint_option, place_options
from .stack_report import choose_stack_reporter, print_json_line

if TYPE_CHECKING:
    from ..infra.sync_stack_manager import SyncStackManager

wait_option = click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait until AWS is done."
)

downgrade_option = click.option(
    "--allow-downgrade", is_flag=True, help="Replace the code of a newer Lambda by this version's."
)


@click.command(
    epilog=examples(
        "deploy --name my-app --region us-east-1",
        "deploy --name my-app --no-aggregator",
        "deploy --name my-app --alarm-sns-topic ARN --create-iam-roles",
        on_a_store=False,
    )
)
@deployment_options
@wait_option
@downgrade_option
@json_option
@place_options(named=False)
def deploy(
    changes: dict[str, Any], wait: bool, allow_downgrade: bool, as_json: bool, place: StackPlace
) -> None:
    """Create a stack on AWS, or change one.

    The stack has the table, the Lambda that counts usage, policies, alarms and an archive. Options
    that are not given keep their value where the stack exists already; deploying twice changes
    nothing. A change that would lose the table's data is refused. With --no-wait the command ends
    when CloudFormation has begun; run it again to upload the Lambda's code.
    """

    def run(manager: SyncStackManager, on_event: OnEvent) -> dict[str, Any]:
        known = manager.get_stack_options()
        options = StackOptions(**changes) if known is None else replace(known, **changes)
        _note_missing_role(options, as_json)
        if not wait:
            return manager.create_stack(options, wait=False, on_event=on_event)
        if known is None:
            return manager.deploy(options, on_event)
        return manager.upgrade(changes, on_event)

    StackOptions(**changes).check_names(place.name)
    done = _carried_out("deploying", place, as_json, run, allow_downgrade=allow_downgrade)
    _print_deployed(done, place, as_json)


def _note_missing_role(options: StackOptions, as_json: bool) -> None:
    if options.enable_aggregator and not options.deploys_aggregator_lambda and not as_json:
        click.echo("Without IAM and without --aggregator-role-arn there is no Lambda.")


@click.command(
    epilog=examples(
        "upgrade --name my-app",
        "upgrade --name my-app --lambda-memory 512",
        "upgrade --name my-app --lambda-only",
        on_a_store=False,
    )
)
@click.option(
    "--lambda-only", is_flag=True, help="Leave the template alone: Lambda's code and versions."
)
@deployment_options
@downgrade_option
@json_option
@place_options(named=False)
def upgrade(
    lambda_only: bool,
    changes: dict[str, Any],
    allow_downgrade: bool,
    as_json: bool,
    place: StackPlace,
) -> None:
    """Bring a stack to this version.

    The template comes first, then the Lambda's code, then the version record, so that the command
    can be interrupted and run again. Options that are not given keep their value.
    """

    def run(manager: SyncStackManager, on_event: OnEvent) -> dict[str, Any]:
        if lambda_only:
            return manager.complete_stack()
        return manager.upgrade(changes, on_event)

    done = _carried_out("upgrading", place, as_json, run, allow_downgrade=allow_downgrade)
    _print_deployed(done, place, as_json)


@click.command(epilog=examples("delete --name my-app --yes", on_a_store=False))
@click.option(
    "--archive",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    show_default=True,
    help="What becomes of the bucket with archived audit events.",
)
@wait_option
@yes_option
@json_option
@place_options(named=True)
def delete(archive: str, wait: bool, yes: bool, as_json: bool, place: StackPlace) -> None:
    """Delete a stack, its table and all data in it.

    With --archive delete, the command can be interrupted and run again: it deletes the archive of a
    stack that is gone already.
    """

    def run(manager: SyncStackManager, on_event: OnEvent) -> dict[str, Any]:
        doomed = archive == "delete"
        return manager.delete_stack(wait=wait, delete_archive=doomed, on_event=on_event)

    if archive == "delete" and not wait:
        raise click.UsageError("--archive delete needs --wait: the bucket goes last.")
    with place.managed() as manager:
        is_gone = not manager.stack_exists()
        bucket = None if is_gone and archive == "keep" else manager.get_archive_bucket()
    if is_gone and bucket is None:
        raise InfrastructureNotFoundError(place.name, "there is no stack of this name")
    if bucket is not None:
        # Told first: whoever is interrupted must be able to find it.
        click.echo(f"Archived audit events are in the bucket {bucket}", err=True)
    if not yes:
        click.confirm(f"Delete stack '{place.name}' with all its data?", abort=True)
    result = _carried_out("deleting", place, as_json, run)
    if as_json:
        print_json_line({"result": result})
        return
    click.echo(f"Stack '{place.name}': {result['status']}")
    _print_archive(result)


def _print_archive(result: dict[str, Any]) -> None:
    if "archive_bucket" in result:
        click.echo(f"Archived audit events stay in the bucket {result['archive_bucket']}")


@click.command(epilog=examples("status --name my-app", on_a_store=False))
@json_option
@place_options(named=True)
def status(as_json: bool, place: StackPlace) -> None:
    """Show the state of a stack, its table and its versions.

    The exit code is 1 when the table does not answer or has no version record, or the stack's last
    operation failed.
    """
    with place.managed() as manager:
        found = manager.get_status()
    if found.stack_status is None and found.table_status is None:
        raise InfrastructureNotFoundError(place.name, "there is no stack and no table of this name")
    if as_json:
        print_json({**asdict(found), "ready": found.is_ready})
    else:
        _print_status(found, place)
    sys.exit(0 if found.is_ready else 1)


@click.command(
    "list", epilog=examples("list --region us-east-1 --region eu-west-1", on_a_store=False)
)
@click.option("--region", "regions", multiple=True, help="An AWS region. Repeat for several.")
@endpoint_option
@json_option
def list_stacks(regions: tuple[str, ...], endpoint_url: str | None, as_json: bool) -> None:
    """List the stacks of limiters."""
    found: list[LimiterInfo] = []
    for region in regions or (None,):
        found += find_deployed(region, endpoint_url)
    if as_json:
        print_json([{**asdict(info), "healthy": info.is_healthy} for info in found])
    elif not found:
        click.echo("No stacks found")
    else:
        _print_stacks(found)


@contextmanager
def _told_how_to_follow(doing: str, place: StackPlace) -> Iterator[None]:
    """Tell a user who interrupts what goes on in AWS all the same."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(
            f"\nInterrupted while {doing} '{place.name}'. What CloudFormation has begun goes on.\n"
            f"  To see how far it is: zae-limiter status {place.options}\n"
            f"  To go on from there:  run the same command again",
            err=True,
        )
        sys.exit(INTERRUPTED_CODE)


def _carried_out(
    doing: str,
    place: StackPlace,
    as_json: bool,
    run: Callable[[SyncStackManager, OnEvent], dict[str, Any]],
    *,
    allow_downgrade: bool = False,
) -> dict[str, Any]:
    with (
        _told_how_to_follow(doing, place),
        place.managed(allow_downgrade=allow_downgrade) as manager,
        choose_stack_reporter(as_json).events() as on_event,
    ):
        return run(manager, on_event)


def _print_deployed(result: dict[str, Any], place: StackPlace, as_json: bool) -> None:
    if as_json:
        print_json_line({"result": result})
        return
    click.echo(f"Stack '{place.name}': {result['status']}")
    for key, told in (("lambda", "Lambda code"), ("provisioner", "Code for declared limits")):
        if key in result:
            code = result[key]
            size = f"{code['size_bytes'] / 1024:.0f} KB, sha256 {code['code_sha256'][:12]}"
            click.echo(f"{told}: {code['status']} ({size})")
    if not result.get("lambda", {}).get("esm_ready", True):
        click.echo("The stream is not delivered to the Lambda yet; AWS is still at it.")
    _print_archive(result)
    if result["status"] == "started":
        click.echo(f"To finish: zae-limiter deploy {place.options}")
    else:
        click.echo(f"Try it: zae-limiter resource set-defaults gpt-4 -l rpm:100 {place.options}")


def _print_status(found: Status, place: StackPlace) -> None:
    unfinished = f"none: to finish, run zae-limiter deploy {place.options}"
    latency = None if found.latency_ms is None else f"{found.latency_ms} ms"
    print_fields(
        f"Stack: {found.name}",
        {
            "Region": found.region,
            "Available": "yes" if found.available else "no",
            "Latency": latency,
            "Stack": found.stack_status or "none: the table was created without one",
            "Table": found.table_status or "none",
            "Aggregator": "Lambda" if found.aggregator_enabled else "none",
            "Client": found.client_version,
            "Schema": found.schema_version or (unfinished if found.available else None),
            "Lambda": found.lambda_version,
            "Items": found.table_item_count,
            "Size": None if found.table_size_bytes is None else f"{found.table_size_bytes:,} bytes",
            "App role": found.app_role_arn,
            "Admin role": found.admin_role_arn,
            "Read-only role": found.readonly_role_arn,
        },
    )


def _print_stacks(found: list[LimiterInfo]) -> None:
    print_table(
        ["Name", "Region", "Status", "Version", "Created"],
        [(i.user_name, i.region, i.stack_status, i.version or "-", i.creation_time) for i in found],
    )
    failed = sum(info.is_failed for info in found)
    busy = sum(info.is_in_progress for info in found)
    told = [f"{failed} failed"] * (failed > 0) + [f"{busy} in progress"] * (busy > 0)
    click.echo(", ".join([f"{len(found)} stack(s)", *told]))
