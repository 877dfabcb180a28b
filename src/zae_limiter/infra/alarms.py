"""Alarms of a stack: failures, slowness and lag of the aggregator, throttled requests.

Logical ids stay as they are for good. A name that went to another logical id would be taken when
CloudFormation creates that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cloudformation import DEAD_LETTERS, FUNCTION, TABLE, Resource, Resources, get_att, ref
from .cloudformation import stack_named as named
from .options import StackOptions

_PERIOD_S = 300
_LAG_MS = 30_000


@dataclass(frozen=True, slots=True)
class _Metric:
    namespace: str
    name: str
    dimension: tuple[str, Any]
    statistic: str = "Sum"


@dataclass(frozen=True, slots=True)
class _Alarm:
    """An alarm goes off when a metric is above the threshold in so many periods in a row."""

    suffix: str
    meaning: str
    metric: _Metric
    threshold: int = 1
    periods: int = 2


_TABLE = ("TableName", ref(TABLE))
_FUNCTION = ("FunctionName", ref(FUNCTION))
_QUEUE = ("QueueName", get_att(DEAD_LETTERS, "QueueName"))
_LEFT = _Metric("AWS/SQS", "ApproximateNumberOfMessagesVisible", _QUEUE, "Maximum")
_TABLE_ALARMS = {
    "DynamoDBReadThrottleAlarm": _Alarm(
        "read-throttle",
        "Reads of the table are throttled",
        _Metric("AWS/DynamoDB", "ReadThrottleEvents", _TABLE),
    ),
    "DynamoDBWriteThrottleAlarm": _Alarm(
        "write-throttle",
        "Writes of the table are throttled",
        _Metric("AWS/DynamoDB", "WriteThrottleEvents", _TABLE),
    ),
}


def alarm_resources(options: StackOptions) -> Resources:
    """Return the alarms, each with the SNS topic as its action if there is one."""
    if not options.enable_alarms:
        return {}
    alarms = dict(_TABLE_ALARMS)
    if options.deploys_aggregator_lambda:
        alarms |= _aggregator_alarms(options)
    return {logical_id: _resource(alarm, options) for logical_id, alarm in alarms.items()}


def _aggregator_alarms(options: StackOptions) -> dict[str, _Alarm]:
    slow_ms = options.lambda_timeout * 10 * options.lambda_duration_threshold_pct
    return {
        "AggregatorDLQAlarm": _Alarm(
            "aggregator-dlq-alarm", "Records could not be counted for a day", _LEFT, 0, 1
        ),
        "LambdaErrorRateAlarm": _Alarm(
            "aggregator-error-rate", "The aggregator fails", _lambda("Errors")
        ),
        "LambdaDurationAlarm": _Alarm(
            "aggregator-duration",
            "The aggregator is close to its timeout",
            _lambda("Duration", "Average"),
            slow_ms,
        ),
        "LambdaThrottleAlarm": _Alarm(
            "aggregator-throttle", "The aggregator is throttled", _lambda("Throttles")
        ),
        "StreamIteratorAgeAlarm": _Alarm(
            "stream-iterator-age",
            "Usage is counted late",
            _lambda("IteratorAge", "Maximum"),
            _LAG_MS,
        ),
    }


def _lambda(name: str, statistic: str = "Sum") -> _Metric:
    return _Metric("AWS/Lambda", name, _FUNCTION, statistic)


def _resource(alarm: _Alarm, options: StackOptions) -> Resource:
    name, value = alarm.metric.dimension
    topic = options.alarm_sns_topic
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmName": named(alarm.suffix),
            "AlarmDescription": alarm.meaning,
            "Namespace": alarm.metric.namespace,
            "MetricName": alarm.metric.name,
            "Dimensions": [{"Name": name, "Value": value}],
            "Statistic": alarm.metric.statistic,
            "Period": _PERIOD_S,
            "EvaluationPeriods": alarm.periods,
            "Threshold": alarm.threshold,
            "ComparisonOperator": "GreaterThanThreshold",
            "TreatMissingData": "notBreaching",
            **({"AlarmActions": [topic]} if topic else {}),
        },
    }
