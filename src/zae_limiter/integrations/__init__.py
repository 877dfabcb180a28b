"""Limits in web applications: rules for HTTP calls, answers to refusals, and their frameworks.

Read `rule` first, and `call`, which rules look at; then `http_fields` and `problem`, which say how
limits and errors look in HTTP; then `asgi` and `wsgi`. `fastapi`, `flask` and `django` (with
`charging_view` and `lease_of_request`) stand on them, and import a framework that only they need.
`limited` charges any function.
"""

from .call import Call, by_address, by_header
from .http_fields import rate_limit_fields
from .limited import limited
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
    "limited",
    "rate_limit_fields",
]
