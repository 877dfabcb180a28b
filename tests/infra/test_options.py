"""Options of a stack are checked before anything is sent."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from zae_limiter import ValidationError
from zae_limiter.infra.options import LOG_RETENTION_DAYS, StackOptions
from zae_limiter.infra.peer_parameters import options_from_parameters

ROLE = "arn:aws:iam::123456789012:role/team/limiter"
TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"

WRONG: list[dict[str, Any]] = [
    {"lambda_timeout": 0},
    {"lambda_timeout": 901},
    {"lambda_timeout": True},
    {"lambda_memory": 127},
    {"lambda_memory": 3009},
    {"lambda_memory": "256"},
    {"lambda_duration_threshold_pct": 0},
    {"lambda_duration_threshold_pct": 101},
    {"pitr_recovery_days": 0},
    {"pitr_recovery_days": 36},
    {"usage_retention_days": 0},
    {"audit_retention_days": -1},
    {"log_retention_days": 2},
    {"snapshot_windows": ""},
    {"snapshot_windows": "hourly,weekly"},
    {"snapshot_windows": None},
    {"role_name_format": "app"},
    {"role_name_format": "{}-{}"},
    {"role_name_format": "a b{}"},
    {"role_name_format": "${x}{}"},
    {"role_name_format": "r" * 54 + "{}"},
    {"policy_name_format": "p" * 119 + "{}"},
    {"audit_archive_glacier_days": 0},
    {"audit_archive_glacier_days": 3651},
    {"create_iam": False, "create_iam_roles": True},
    {"aggregator_role_arn": "limiter"},
    {"aggregator_role_arn": "arn:aws:iam::1:role/x"},
    {"alarm_sns_topic": "alarms"},
    {"permission_boundary": "no spaces"},
    {"enable_aggregator": "yes"},
    {"tags": {f"key-{number}": "" for number in range(46)}},
    {"tags": {"aws:mine": "x"}},
    {"tags": {"": "x"}},
    {"tags": {"k" * 129: "x"}},
    {"tags": {"key": "v" * 257}},
    {"tags": ["key=value"]},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_option_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        StackOptions(**wrong)
    assert raised.value.field in wrong
    assert isinstance(raised.value, ValueError)
    assert pickle.loads(pickle.dumps(raised.value)).field == raised.value.field


def test_options_survive_being_written_and_read() -> None:
    options = StackOptions(
        alarm_sns_topic=TOPIC, aggregator_role_arn=ROLE, pitr_recovery_days=7, tags={"team": "a"}
    )
    assert StackOptions.from_dict({**options.to_dict(), "of_a_later_version": 1}) == options
    assert StackOptions.from_dict({}) == StackOptions()


def test_every_retention_that_cloudwatch_has_is_allowed() -> None:
    for days in LOG_RETENTION_DAYS:
        assert StackOptions(log_retention_days=days).log_retention_days == days


def test_names_follow_their_format_and_are_checked_for_their_length() -> None:
    plain = StackOptions()
    assert plain.get_role_name("my-app", "aggr") == "my-app-aggr"
    formatted = StackOptions(role_name_format="pb-{}-x", policy_name_format="{}.limits")
    assert formatted.get_role_name("my-app", "app") == "pb-my-app-app-x"
    assert formatted.get_policy_name("my-app", "ns-acq") == "my-app-ns-acq.limits"
    formatted.check_names("my-app")
    plain.check_names("s" * 55)
    with pytest.raises(ValidationError, match="64 characters"):
        StackOptions(role_name_format="r" * 20 + "{}").check_names("s" * 55)


@pytest.mark.parametrize(
    ("options", "has_lambda"),
    [
        (StackOptions(), True),
        (StackOptions(enable_aggregator=False), False),
        (StackOptions(create_iam=False), False),
        (StackOptions(create_iam=False, aggregator_role_arn=ROLE), True),
    ],
)
def test_an_aggregator_needs_a_role(options: StackOptions, has_lambda: bool) -> None:
    assert options.deploys_aggregator_lambda is has_lambda
    assert options.deploys_archive is has_lambda


def test_parameters_of_the_existing_package_are_understood() -> None:
    parameters = {
        "SnapshotWindows": "hourly",
        "LambdaTimeout": "120",
        "LambdaDurationThreshold": "60000",
        "EnableAlarms": "false",
        "EnableIAMRoles": "true",
        "AlarmSNSTopicArn": "",
        "AggregatorRoleName": "pb-my-app-aggr",
        "AcquireOnlyPolicyName": "pb-my-app-acq",
        "SchemaVersion": "0.10.0",
        "PITRRecoveryPeriodDays": "",
    }
    assert options_from_parameters("my-app", parameters) == StackOptions(
        snapshot_windows="hourly",
        lambda_timeout=120,
        lambda_duration_threshold_pct=50,
        enable_alarms=False,
        create_iam_roles=True,
        role_name_format="pb-{}",
        policy_name_format="pb-{}",
    )


@pytest.mark.parametrize(("threshold_ms", "percent"), [("48000", 80), ("1", 1), ("900000", 100)])
def test_a_threshold_in_milliseconds_becomes_a_part_of_the_timeout(
    threshold_ms: str, percent: int
) -> None:
    options = options_from_parameters("my-app", {"LambdaDurationThreshold": threshold_ms})
    assert options.lambda_duration_threshold_pct == percent
