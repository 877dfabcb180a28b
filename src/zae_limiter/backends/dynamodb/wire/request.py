"""A request consists of a head that many requests share, a signature, and a body."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from .http1 import request_bytes, request_head


class SharedHead:
    """Many requests share this target and these headers. A signature ends the last header."""

    def __init__(self, target: str, headers: Mapping[str, str]) -> None:
        self._target = target
        self._headers = headers

    @cached_property
    def text(self) -> bytes:
        """Return the bytes of the head up to the signature. Raises `Malformed`."""
        return request_head(self._target, self._headers)


class SignedRequest(NamedTuple):
    """A signed request is a POST. `signature` is the end of its last header."""

    shared_head: SharedHead
    signature: str
    body: bytes

    def to_bytes(self) -> bytes:
        """Return the whole request as it is sent. Raises `Malformed`."""
        return request_bytes(self.shared_head.text + self.signature.encode(), self.body)
