"""Limits in web applications: rules for HTTP calls, answers to refusals, and their frameworks.

Read `rule` first, and `call`, which rules look at; then `http_fields` and `problem`, which say how
limits and errors look in HTTP. A framework's package is imported only by the module that is named
after it.
"""

from .call import Call, by_address, by_header
from .http_fields import rate_limit_fields
from .problem import HttpAnswer, answer_to
from .rule import Rule, exempt

__all__ = [
    "Call",
    "HttpAnswer",
    "Rule",
    "answer_to",
    "by_address",
    "by_header",
    "exempt",
    "rate_limit_fields",
]
