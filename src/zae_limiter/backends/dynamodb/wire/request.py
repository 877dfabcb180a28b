"""A request on its way to the service."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from .http1 import request_bytes, request_head


class SharedHead:
    """What many requests have in common: a path, and headers, the last of which may go on."""

    def __init__(self, target: str, headers: Mapping[str, str]) -> None:
        self._target = target
        self._headers = headers

    @cached_property
    def text(self) -> bytes:
        """The head of a POST, as far as it is the same for all. Raises `Malformed`."""
        return request_head(self._target, self._headers)


class SignedRequest(NamedTuple):
    """A POST. `signature` is how its last header goes on."""

    shared_head: SharedHead
    signature: str
    body: bytes

    def to_bytes(self) -> bytes:
        """All of it, as it is sent. Raises `Malformed`."""
        return request_bytes(self.shared_head.text + self.signature.encode(), self.body)
