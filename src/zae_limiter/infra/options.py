"""The options of a stack, checked before anything is sent to AWS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from ..core.exceptions import ValidationError
from ..core.windows import WINDOW_TYPES

LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
ROLES = ("aggr", "app", "admin", "read", "prov")
POLICIES = ("acq", "full", "read", "ns-acq", "ns-full", "ns-read", "aggregate")
_ROLE_CHARS = 64
_POLICY_CHARS = 128
_MAX_TAGS = 45
_FORMAT = re.compile(r"[\w+=,.@-]*\{\}[\w+=,.@-]*", re.ASCII)
_PARTITION = r"arn:aws(-[a-z]+)*:"
_ROLE_ARN = re.compile(_PARTITION + r"iam::\d{12}:role/.+", re.ASCII)
_TOPIC_ARN = re.compile(_PARTITION + r"sns:[a-z0-9-]+:\d{12}:[\w.-]+", re.ASCII)
_BOUNDARY = re.compile(rf"{_PARTITION}iam::(\d{{12}}|aws):policy/.+|[\w+=,.@/-]+", re.ASCII)
_RANGES = {
    "usage_retention_days": (1, 3650),
    "audit_retention_days": (1, 3650),
    "pitr_recovery_days": (1, 35),
    "lambda_timeout": (1, 900),
    "lambda_memory": (128, 3008),
    "lambda_duration_threshold_pct": (1, 100),
    "audit_archive_glacier_days": (1, 3650),
}
_OPTIONAL = {"pitr_recovery_days"}


class StackOptionError(ValidationError, ValueError):
    """An option of a stack has a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class StackOptions:
    """The options say which parts a stack has, and how they are set up.

    `create_iam_roles` adds roles for applications, operators and readers. With `create_iam=False`
    the stack has no roles and policies of its own: the aggregator then needs `aggregator_role_arn`,
    and is left out without one. A format of names has one `{}`, for the stack and the component.
    """

    snapshot_windows: str = "hourly,daily"
    usage_retention_days: int = 90
    audit_retention_days: int = 90
    enable_aggregator: bool = True
    pitr_recovery_days: int | None = None
    log_retention_days: int = 30
    lambda_timeout: int = 60
    lambda_memory: int = 256
    enable_alarms: bool = True
    alarm_sns_topic: str | None = None
    lambda_duration_threshold_pct: int = 80
    permission_boundary: str | None = None
    role_name_format: str | None = None
    policy_name_format: str | None = None
    enable_audit_archival: bool = True
    audit_archive_glacier_days: int = 90
    enable_tracing: bool = False
    create_iam_roles: bool = False
    create_iam: bool = True
    aggregator_role_arn: str | None = None
    enable_deletion_protection: bool = False
    enable_provisioner: bool = True
    tags: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_switches(self)
        _check_windows(self.snapshot_windows)
        _check_format("role_name_format", self.role_name_format, 55)
        _check_format("policy_name_format", self.policy_name_format, 120)
        _check_pattern("aggregator_role_arn", self.aggregator_role_arn, _ROLE_ARN, "a role's ARN")
        _check_pattern("alarm_sns_topic", self.alarm_sns_topic, _TOPIC_ARN, "an SNS topic's ARN")
        boundary = "a policy's name or ARN"
        _check_pattern("permission_boundary", self.permission_boundary, _BOUNDARY, boundary)
        _check_tags(self.tags)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Read options as `to_dict` wrote them; names that are unknown here are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Return the options as a template keeps them."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def deploys_aggregator_lambda(self) -> bool:
        """Whether the stack has the Lambda: without any role it could not run."""
        return self.enable_aggregator and (self.create_iam or self.aggregator_role_arn is not None)

    @property
    def deploys_provisioner_lambda(self) -> bool:
        """Whether the stack has the Lambda that applies declared limits: it has a role of the
        stack's own."""
        return self.enable_provisioner and self.create_iam

    @property
    def deploys_archive(self) -> bool:
        """Whether the stack has a bucket for expired audit events."""
        return self.deploys_aggregator_lambda and self.enable_audit_archival

    def get_role_name(self, stack_name: str, component: str) -> str:
        """Return the name of a role of the stack: `aggr`, `app`, `admin` or `read`."""
        return _name("role_name_format", self.role_name_format, stack_name, component, _ROLE_CHARS)

    def get_policy_name(self, stack_name: str, component: str) -> str:
        """Return the name of a managed policy of the stack, for example of `acq`."""
        chosen = self.policy_name_format
        return _name("policy_name_format", chosen, stack_name, component, _POLICY_CHARS)

    def check_names(self, stack_name: str) -> None:
        """Refuse formats that make a name too long for this stack."""
        for component in ROLES:
            self.get_role_name(stack_name, component)
        for component in POLICIES:
            self.get_policy_name(stack_name, component)


def _name(field: str, pattern: str | None, stack: str, component: str, max_chars: int) -> str:
    name = (pattern or "{}").replace("{}", f"{stack}-{component}")
    if len(name) > max_chars:
        raise StackOptionError(field, name, f"makes a name of more than {max_chars} characters")
    return name


def _check_numbers(options: StackOptions) -> None:
    for field, (least, most) in _RANGES.items():
        value = getattr(options, field)
        if value is None and field in _OPTIONAL:
            continue
        if type(value) is not int or not least <= value <= most:
            raise StackOptionError(field, value, f"must be an integer from {least} to {most}")
    if options.log_retention_days not in LOG_RETENTION_DAYS:
        known = ", ".join(map(str, LOG_RETENTION_DAYS))
        raise StackOptionError(
            "log_retention_days", options.log_retention_days, f"must be one of {known}"
        )


def _check_switches(options: StackOptions) -> None:
    for field in fields(StackOptions):
        value = getattr(options, field.name)
        if field.type == "bool" and not isinstance(value, bool):
            raise StackOptionError(field.name, value, "must be true or false")
    if options.create_iam_roles and not options.create_iam:
        raise StackOptionError(
            "create_iam_roles", True, "needs create_iam: roles without policies can do nothing"
        )


def _check_windows(text: object) -> None:
    named = [name.strip() for name in text.split(",")] if isinstance(text, str) else []
    if not named or not set(named) <= set(WINDOW_TYPES):
        known = ",".join(WINDOW_TYPES)
        raise StackOptionError("snapshot_windows", text, f"must be some of {known}")


def _check_format(field: str, value: object, max_chars: int) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not _FORMAT.fullmatch(value) or len(value) > max_chars:
        raise StackOptionError(
            field,
            value,
            f"must have exactly one {{}}, at most {max_chars} characters, and else only letters,"
            " digits and + = , . @ - _",
        )


def _check_pattern(field: str, value: object, pattern: re.Pattern[str], meaning: str) -> None:
    if value is not None and not (isinstance(value, str) and pattern.fullmatch(value)):
        raise StackOptionError(field, value, f"must be {meaning}")


def _check_tags(tags: object) -> None:
    if tags is None:
        return
    if not isinstance(tags, Mapping) or len(tags) > _MAX_TAGS:
        raise StackOptionError("tags", tags, f"must be at most {_MAX_TAGS} keys with values")
    for key, value in tags.items():
        if not isinstance(key, str) or not 1 <= len(key) <= 128 or key.startswith("aws:"):
            reason = "a key has 1 to 128 characters and does not begin with aws:"
            raise StackOptionError("tags", key, reason)
        if not isinstance(value, str) or len(value) > 256:
            raise StackOptionError("tags", value, "a value has at most 256 characters")
