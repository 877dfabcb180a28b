"""This module has the options that say what a stack has."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from ..infra.options import LOG_RETENTION_DAYS, StackOptions
from .options import Command

_USUAL = StackOptions()


def _switch(on: str, off: str, field: str, told: str) -> Callable[[Command], Command]:
    usual = getattr(_USUAL, field)
    return click.option(f"--{on}/--{off}", field, default=usual, show_default=True, help=told)


def _number(field: str, least: int, most: int, told: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{field.replace('_', '-')}",
        field,
        type=click.IntRange(least, most),
        default=getattr(_USUAL, field),
        show_default=True,
        metavar="NUMBER",
        help=told,
    )


def _text(field: str, told: str) -> Callable[[Command], Command]:
    usual = getattr(_USUAL, field)
    name = f"--{field.replace('_', '-')}"
    return click.option(name, field, default=usual, show_default=usual is not None, help=told)


def _read_tags(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    return dict(text.split("=", 1) for text in texts) or None


def _read_days(ctx: click.Context, parameter: click.Parameter, value: str) -> int:
    return int(value)


_OPTIONS = (
    _text("snapshot_windows", "Windows to keep usage of: hourly, daily, monthly."),
    _number("usage_retention_days", 1, 3650, "How long usage is kept."),
    _number("audit_retention_days", 1, 3650, "How long audit events are kept in the table."),
    _switch("enable-aggregator", "no-aggregator", "enable_aggregator", "A Lambda counts usage."),
    _switch(
        *("enable-provisioner", "no-provisioner", "enable_provisioner"),
        "A Lambda applies declared limits, for CloudFormation.",
    ),
    click.option(
        "--pitr-recovery-days",
        type=click.IntRange(1, 35),
        metavar="NUMBER",
        help="How far back the table can be restored; AWS's default is 35.",
    ),
    click.option(
        "--log-retention-days",
        type=click.Choice([str(days) for days in LOG_RETENTION_DAYS]),
        callback=_read_days,
        default=str(_USUAL.log_retention_days),
        show_default=True,
        metavar="NUMBER",
        help="How long the Lambda's log is kept: 1, 3, 5, 7, 14, 30, 60, 90 ... days.",
    ),
    _number("lambda_timeout", 1, 900, "The Lambda's timeout, in seconds."),
    _number("lambda_memory", 128, 3008, "The Lambda's memory, in MB."),
    _switch("enable-alarms", "no-alarms", "enable_alarms", "Alarms of table and Lambda."),
    _text("alarm_sns_topic", "The ARN of an SNS topic that alarms are sent to."),
    _number("lambda_duration_threshold_pct", 1, 100, "Alarm at this part of the timeout."),
    _text("permission_boundary", "A policy, by name or ARN, that bounds every role."),
    _text("role_name_format", "Names of roles, with {} for stack and role."),
    _text("policy_name_format", "Names of policies, with {} for stack and policy."),
    _switch(
        *("enable-audit-archival", "no-audit-archival", "enable_audit_archival"),
        "Expired audit events are kept in an S3 bucket.",
    ),
    _number("audit_archive_glacier_days", 1, 3650, "Archived events move to Glacier then."),
    _switch("enable-tracing", "no-tracing", "enable_tracing", "Trace the Lambda with X-Ray."),
    _switch(
        *("create-iam-roles", "no-create-iam-roles", "create_iam_roles"),
        "Roles for applications, operators and readers.",
    ),
    _switch("iam", "no-iam", "create_iam", "Roles and policies are part of the stack."),
    _text("aggregator_role_arn", "A role of your own for the Lambda."),
    _switch(
        *("enable-deletion-protection", "no-deletion-protection", "enable_deletion_protection"),
        "The table cannot be deleted.",
    ),
    click.option(
        "--tag", "-t", "tags", multiple=True, callback=_read_tags, metavar="KEY=VALUE",
        help="A tag of the stack. Repeat for several.",
    ),
)  # fmt: skip
_FIELDS = frozenset(StackOptions.__dataclass_fields__)


def deployment_options(command: Command) -> Callable[..., Any]:
    """Add the options of a stack. The command is given those that were typed, as `changes`: the
    others keep their value where a stack exists already."""

    @wraps(command)
    def with_changes(*args: Any, **options: Any) -> Any:
        source = click.get_current_context().get_parameter_source
        chosen = {name: options.pop(name) for name in _FIELDS & options.keys()}
        typed = {
            name: value
            for name, value in chosen.items()
            if source(name) is ParameterSource.COMMANDLINE
        }
        return command(*args, changes=typed, **options)

    decorated: Callable[..., Any] = with_changes
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
