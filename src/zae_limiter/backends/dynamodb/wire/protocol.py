"""DynamoDB's JSON 1.0 protocol: requests to bytes, answers to values."""

from __future__ import annotations

import json
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import ErrorAnswer, lost

_TARGET = "DynamoDB_20120810."
_SHOWN_BODY_CHARS = 200


class Answer(NamedTuple):
    """One HTTP response. Header names are found in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request_headers(operation: str) -> dict[str, str]:
    """What a request for this operation says of itself, before it is signed."""
    return {
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": _TARGET + operation,
    }


class SelfEncoded(Mapping[str, Any]):
    """Parameters that know their own JSON, because most of it is the same each time."""

    @abstractmethod
    def to_json(self) -> str:
        """The JSON of the mapping."""


_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_decoder = json.JSONDecoder()
to_json = _encoder.encode
to_text = json.encoder.encode_basestring_ascii


def request_body(parameters: Mapping[str, Any]) -> bytes:
    """The parameters of an operation as they are sent."""
    # To ask whether it is an instance takes longer, since mappings are abstract.
    encode = getattr(parameters, "to_json", None)
    text: str = to_json(parameters) if encode is None else encode()
    return text.encode()


def read_answer(operation: str, answer: Answer) -> dict[str, Any] | ErrorAnswer:
    """What an answer says. One that is damaged says nothing: what was asked may have happened."""
    checksum = answer.headers.get("x-amz-crc32")
    if checksum is not None and checksum != str(zlib.crc32(answer.body)):
        raise lost(f"{operation}: the checksum of the answer is wrong")
    if answer.status != 200:
        return _error_answer(operation, answer)
    try:
        return _decode(answer.body.decode().strip())
    except ValueError as error:
        raise lost(f"{operation}: the answer is not JSON", error) from error


def _decode(text: str) -> dict[str, Any]:
    content: dict[str, Any]
    content, end = _decoder.raw_decode(text)
    if end < len(text):
        raise ValueError(f"more follows at {end}")
    return content


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
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
