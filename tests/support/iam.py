"""A small evaluator of IAM policies, and the requests that IAM sees of calls to DynamoDB.

It knows what the project's policies use: Allow statements, wildcards in actions and resources, the
operators `StringLike`, `StringEquals` and `Null`, the prefix `ForAllValues`, and variables.
Everything else fails loudly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = Mapping[str, Any]
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
LEADING_KEYS = "dynamodb:LeadingKeys"


@dataclass(frozen=True)
class IamRequest:
    """One action on one resource, as IAM judges it. A context key that is not there is missing."""

    action: str
    resource: str
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.context.get(LEADING_KEYS, ())

    def __str__(self) -> str:
        return f"{self.action} on {self.resource.rpartition(':')[2]} {sorted(set(self.keys))}"


def allows(document: Document, request: IamRequest, tags: Mapping[str, str] | None = None) -> bool:
    """Whether a policy allows a request of a principal with these tags."""
    variables = {f"aws:PrincipalTag/{name}": value for name, value in (tags or {}).items()}
    return any(_applies(each, request, variables) for each in document["Statement"])


def _applies(statement: Document, request: IamRequest, variables: Mapping[str, str]) -> bool:
    assert statement["Effect"] == "Allow", statement
    assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}, statement
    return (
        any(_like(pattern, request.action) for pattern in _many(statement["Action"]))
        and any(_like(pattern, request.resource) for pattern in _many(statement["Resource"]))
        and all(
            _holds(operator, key, _many(wanted), request, variables)
            for operator, block in statement.get("Condition", {}).items()
            for key, wanted in block.items()
        )
    )


def _holds(
    operator: str,
    key: str,
    wanted: Sequence[str],
    request: IamRequest,
    variables: Mapping[str, str],
) -> bool:
    found = request.context.get(key)
    if operator == "Null":
        return (found is None) == (wanted == ["true"])
    prefix, _, name = operator.rpartition(":")
    assert name in ("StringLike", "StringEquals"), operator
    patterns = [text for pattern in wanted for text in _filled(pattern, variables)]
    matched = [
        any(_like(p, value) if name == "StringLike" else p == value for p in patterns)
        for value in found or ()
    ]
    if prefix == "ForAllValues":
        # With no values at all it holds, as IAM's does: only Null can keep such a request out.
        return all(matched)
    assert not prefix, operator
    return bool(matched) and matched[0]


def _filled(pattern: str, variables: Mapping[str, str]) -> list[str]:
    """Return the pattern with its variables; none when a variable has no value."""
    if any(name not in variables for name in _VARIABLE.findall(pattern)):
        return []
    return [_VARIABLE.sub(lambda match: variables[match[1]], pattern)]


def _like(pattern: str, text: str) -> bool:
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(escaped, text) is not None


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_ACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
_ITEM_CALLS = {"GetItem", "PutItem", "UpdateItem", "DeleteItem"}
_STREAM_CALLS = {"DescribeStream", "GetShardIterator", "GetRecords"}


def dynamodb_requests(operation: str, body: Mapping[str, Any], arn: str) -> Iterator[IamRequest]:
    """Yield what IAM sees of a call on the table with this ARN."""
    if operation in _ITEM_CALLS:
        yield _on_items(operation, arn, [body])
    elif operation == "Query":
        index = body.get("IndexName")
        place = f"{arn}/index/{index}" if index else arn
        yield _request(operation, place, [_queried(body)])
    elif operation == "TransactWriteItems":
        for action in body["TransactItems"]:
            ((kind, written),) = action.items()
            yield _on_items(_ACTIONS[kind], arn, [written])
    elif operation in ("BatchGetItem", "BatchWriteItem"):
        ((_, batch),) = body["RequestItems"].items()
        yield _on_items(operation, arn, list(_batched(batch)))
    elif operation in _STREAM_CALLS:
        yield IamRequest(f"dynamodb:{operation}", f"{arn}/stream/2026-01-01T00:00:00.000")
    elif operation == "ListStreams":
        # IAM knows no resource of it.
        yield IamRequest(f"dynamodb:{operation}", "*")
    else:
        assert operation in ("DescribeTable", "Scan"), f"{operation} is not known here"
        yield IamRequest(f"dynamodb:{operation}", arn)


def _on_items(operation: str, arn: str, items: Iterable[Mapping[str, Any]]) -> IamRequest:
    keys = [(item.get("Key") or item.get("Item") or item)["PK"]["S"] for item in items]
    return _request(operation, arn, keys)


def _request(operation: str, resource: str, keys: Sequence[str]) -> IamRequest:
    return IamRequest(f"dynamodb:{operation}", resource, {LEADING_KEYS: tuple(keys)})


def _batched(batch: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(batch, Mapping):
        yield from batch["Keys"]
        return
    for each in batch:
        ((_, written),) = each.items()
        yield written


def _queried(body: Mapping[str, Any]) -> str:
    """Return the value of the partition key in a query."""
    names, values = body["ExpressionAttributeNames"], body["ExpressionAttributeValues"]
    partition = f"{body.get('IndexName', '')}PK"
    for name, value in re.findall(r"(#\w+) ?= ?(:\w+)", body["KeyConditionExpression"]):
        if names[name] == partition:
            found: str = values[value]["S"]
            return found
    raise AssertionError(f"no partition in {body['KeyConditionExpression']}")
