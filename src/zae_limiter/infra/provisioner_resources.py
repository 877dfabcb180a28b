"""The Lambda that applies declared limits, for `Custom::ZaeLimiterLimits`, and its log.

As for the aggregator, the template has a stand-in for the code, whose text must stay as it is.
"""

from __future__ import annotations

from .aggregator_resources import RUNTIME, log_group
from .cloudformation import (
    PROVISIONER,
    PROVISIONER_LOG,
    PROVISIONER_ROLE,
    TABLE,
    Resource,
    Resources,
    get_att,
    ref,
    stack_named,
)
from .options import StackOptions

PROVISIONER_HANDLER = "zae_limiter_provisioner.handler.on_event"
PROVISIONER_STAND_IN = (
    'raise RuntimeError("The code of the provisioner has not been deployed yet")\n'
)
_COMPONENT = "limits-provisioner"
_TIMEOUT_S = 300
_MEMORY_MB = 256


def provisioner_resources(options: StackOptions) -> Resources:
    """Return the Lambda and its log, but for its role."""
    return {PROVISIONER_LOG: log_group(options, _COMPONENT), PROVISIONER: _function(options)}


def _function(options: StackOptions) -> Resource:
    tracing = {"TracingConfig": {"Mode": "Active"}} if options.enable_tracing else {}
    return {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "FunctionName": stack_named(_COMPONENT),
            "Description": "Applies declared limits to a limiter's table",
            "Runtime": RUNTIME,
            "Handler": PROVISIONER_HANDLER,
            "Code": {"ZipFile": PROVISIONER_STAND_IN},
            "Role": get_att(PROVISIONER_ROLE, "Arn"),
            "MemorySize": _MEMORY_MB,
            "Timeout": _TIMEOUT_S,
            "LoggingConfig": {"LogGroup": ref(PROVISIONER_LOG)},
            "Environment": {"Variables": {"TABLE_NAME": ref(TABLE)}},
            **tracing,
        },
    }
