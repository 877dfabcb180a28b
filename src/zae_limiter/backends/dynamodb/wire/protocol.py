"""This module turns calls into JSON requests, and JSON answers into values."""

from __future__ import annotations

import json
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import ErrorAnswer, lost

_TARGET = "DynamoDB_20120810."
_STREAMS_TARGET = "DynamoDBStreams_20120810."
_STREAMS_OPERATIONS = {"DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"}
_SHOWN_BODY_CHARS = 200


class Answer(NamedTuple):
    """An HTTP answer has status, headers and body. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request_headers(operation: str) -> dict[str, str]:
    """Return the headers of a request for an operation, before it is signed."""
    target = _STREAMS_TARGET if operation in _STREAMS_OPERATIONS else _TARGET
    return {
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": target + operation,
    }


class SelfEncoded(Mapping[str, Any]):
    """Such parameters write their own JSON, because most of it is equal for all calls."""

    @abstractmethod
    def to_json(self) -> str:
        """Return the JSON of the mapping."""


_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_decoder = json.JSONDecoder()
to_json = _encoder.encode
to_text = json.encoder.encode_basestring_ascii


def request_body(parameters: Mapping[str, Any]) -> bytes:
    """Return the parameters of an operation as they are sent."""
    # isinstance would take longer, because Mapping is an abstract class.
    encode = getattr(parameters, "to_json", None)
    text: str = to_json(parameters) if encode is None else encode()
    return text.encode()


def read_answer(operation: str, answer: Answer) -> dict[str, Any] | ErrorAnswer:
    """Return the content of an answer. A damaged answer leaves the outcome unknown: `lost`."""
    checksum = answer.headers.get("x-amz-crc32")
    if checksum is not None and checksum != str(zlib.crc32(answer.body)):
        raise lost(f"{operation}: the checksum of the answer is wrong")
    if answer.status != 200:
        return _error_answer(operation, answer)
    try:
        content = _decode(answer.body.decode().strip())
        required = _REQUIRED.get(operation)
        if required is not None and required not in content:
            raise ValueError(f"it has no {required}")
        return content
    except (ValueError, RecursionError) as error:
        raise lost(f"{operation}: the answer is not JSON of DynamoDB", error) from error


def _decode(text: str) -> dict[str, Any]:
    content, end = _decoder.raw_decode(text)
    if end < len(text):
        raise ValueError(f"more follows at {end}")
    if type(content) is not dict:
        raise ValueError(f"a {type(content).__name__} in place of an object")
    for name, value in content.items():
        expected = _SHAPES.get(name)
        if expected is not None and type(value) is not expected:
            raise ValueError(f"{name} is a {type(value).__name__}")
    return content


_REQUIRED = {
    "BatchGetItem": "Responses",
    "DescribeTable": "Table",
    "Query": "Items",
    "Scan": "Items",
}
_SHAPES: dict[str, type] = {
    "Attributes": dict,
    "Item": dict,
    "Items": list,
    "LastEvaluatedKey": dict,
    "Responses": dict,
    "Table": dict,
    "UnprocessedItems": dict,
    "UnprocessedKeys": dict,
}
"""The parts of answers that are read, and the JSON types that DynamoDB gives them."""


def _error_answer(operation: str, answer: Answer) -> ErrorAnswer:
    fields = _fields(answer.body)
    kind = fields.get("__type") or answer.headers.get("x-amzn-errortype") or ""
    code = str(kind).rpartition("#")[2].partition(":")[0]
    shown = answer.body[:_SHOWN_BODY_CHARS].decode(errors="replace")
    message = fields.get("message") or fields.get("Message") or ("" if code else shown)
    return ErrorAnswer(operation, answer.status, code, str(message), fields)


def _fields(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
