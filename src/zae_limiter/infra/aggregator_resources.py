"""The Lambda that counts usage, and everything that it needs: log, queue, archive, mapping.

The template has no code of it, only a stand-in that fails. `StackManager` uploads the code
afterwards, so that no bucket is needed to deploy; until then records are delivered again and again,
and none is lost. The text of the stand-in must stay as it is: if it changed, an update of
the stack would put the stand-in back.
"""

from __future__ import annotations

from typing import Any

from .cloudformation import (
    ARCHIVE,
    DEAD_LETTERS,
    FUNCTION,
    LOG_GROUP,
    MAPPING,
    ROLE,
    TABLE,
    Resource,
    Resources,
    get_att,
    ref,
    stack_named,
    sub,
)
from .event_filter import filter_criteria
from .options import StackOptions

HANDLER = "zae_limiter_aggregator.handler.handler"
RUNTIME = "python3.12"
STAND_IN = 'raise RuntimeError("The code of the aggregator has not been deployed yet")\n'
_BATCH_RECORDS = 1000
_BATCH_WINDOW_S = 5
# A stream keeps records for a day. A record that cannot be counted goes to the queue before that.
_OLDEST_RECORD_S = 82_800
_QUEUE_RETENTION_S = 1_209_600


def aggregator_resources(options: StackOptions, starting_position: str) -> Resources:
    """Return the Lambda and what it needs, but for its role."""
    made = {
        LOG_GROUP: log_group(options, "aggregator"),
        DEAD_LETTERS: _dead_letters(),
        FUNCTION: _function(options),
        MAPPING: _mapping(options, starting_position),
    }
    return {**made, ARCHIVE: _archive(options)} if options.deploys_archive else made


def log_group(options: StackOptions, component: str) -> Resource:
    """Return the log of a Lambda of the stack."""
    return {
        "Type": "AWS::Logs::LogGroup",
        "DeletionPolicy": "Delete",
        "UpdateReplacePolicy": "Delete",
        "Properties": {
            "LogGroupName": sub("/aws/lambda/${AWS::StackName}-" + component),
            "RetentionInDays": options.log_retention_days,
        },
    }


def _dead_letters() -> Resource:
    return {
        "Type": "AWS::SQS::Queue",
        "DeletionPolicy": "Delete",
        "UpdateReplacePolicy": "Delete",
        "Properties": {
            "QueueName": stack_named("aggregator-dlq"),
            "MessageRetentionPeriod": _QUEUE_RETENTION_S,
            "VisibilityTimeout": 300,
            "SqsManagedSseEnabled": True,
        },
    }


def _archive(options: StackOptions) -> Resource:
    """Audit events outlive the stack, unless its creation failed."""
    private = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    to_glacier = {
        "StorageClass": "GLACIER_IR",
        "TransitionInDays": options.audit_archive_glacier_days,
    }
    encryption = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    return {
        "Type": "AWS::S3::Bucket",
        "DeletionPolicy": "RetainExceptOnCreate",
        "UpdateReplacePolicy": "Retain",
        "Properties": {
            "BucketEncryption": {"ServerSideEncryptionConfiguration": [encryption]},
            "PublicAccessBlockConfiguration": dict.fromkeys(private, True),
            "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
            "LifecycleConfiguration": {
                "Rules": [{"Id": "Archive", "Status": "Enabled", "Transitions": [to_glacier]}]
            },
        },
    }


def _function(options: StackOptions) -> Resource:
    tracing = {"TracingConfig": {"Mode": "Active"}} if options.enable_tracing else {}
    role = options.aggregator_role_arn or get_att(ROLE, "Arn")
    return {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "FunctionName": stack_named("aggregator"),
            "Description": "Counts the usage of a limiter's table from its stream",
            "Runtime": RUNTIME,
            "Handler": HANDLER,
            "Code": {"ZipFile": STAND_IN},
            "Role": role,
            "MemorySize": options.lambda_memory,
            "Timeout": options.lambda_timeout,
            "LoggingConfig": {"LogGroup": ref(LOG_GROUP)},
            "Environment": {"Variables": _variables(options)},
            **tracing,
        },
    }


def _variables(options: StackOptions) -> dict[str, Any]:
    variables: dict[str, Any] = {
        "TABLE_NAME": ref(TABLE),
        "SNAPSHOT_WINDOWS": options.snapshot_windows,
        "SNAPSHOT_TTL_DAYS": str(options.usage_retention_days),
    }
    if options.deploys_archive:
        variables |= {"ENABLE_ARCHIVAL": "true", "ARCHIVE_BUCKET_NAME": ref(ARCHIVE)}
    return variables


def _mapping(options: StackOptions, starting_position: str) -> Resource:
    return {
        "Type": "AWS::Lambda::EventSourceMapping",
        "Properties": {
            "EventSourceArn": get_att(TABLE, "StreamArn"),
            "FunctionName": get_att(FUNCTION, "Arn"),
            "StartingPosition": starting_position,
            "BatchSize": _BATCH_RECORDS,
            "MaximumBatchingWindowInSeconds": _BATCH_WINDOW_S,
            "MaximumRetryAttempts": -1,
            "MaximumRecordAgeInSeconds": _OLDEST_RECORD_S,
            "BisectBatchOnFunctionError": True,
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "DestinationConfig": {"OnFailure": {"Destination": get_att(DEAD_LETTERS, "Arn")}},
            "FilterCriteria": filter_criteria(archives=options.deploys_archive),
        },
    }
