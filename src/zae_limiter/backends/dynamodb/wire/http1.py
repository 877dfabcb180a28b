"""This module writes HTTP/1.1 requests and reads answers, without any I/O."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Literal, NamedTuple

from .protocol import Answer

LONGEST_HEAD_BYTES = 64 * 1024
_LONGEST_LINE_BYTES = 4 * 1024
_LARGEST_BODY_BYTES = 256 * 1024 * 1024
_START = re.compile(r"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: .*)?")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;.*)?")
_WITHOUT_BODY = frozenset({204, 304})

Steps = Generator[None, None, Answer]


class Malformed(Exception):
    """The bytes are not HTTP, or not a whole message."""


class Head(NamedTuple):
    """The head of an answer holds status and headers. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    keeps_open: bool


def request_head(target: str, headers: Mapping[str, str], method: str = "POST") -> bytes:
    """Write the head of a request, without the end of its last header: a caller may append to
    that. A header that breaks out of its line is `Malformed`."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if _has_break(lines):
        raise Malformed("a header of the request holds a line break: check the credentials")
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines]).encode()


def request_bytes(head: bytes, body: bytes) -> bytes:
    """Write a whole request from its head and body."""
    return b"%b\r\ncontent-length: %d\r\n\r\n%b" % (head, len(body), body)


def _has_break(lines: Sequence[str]) -> bool:
    text = "".join(lines)
    return "\n" in text or "\r" in text


class Incoming:
    """A reader takes the bytes of one answer as they arrive, until the answer is whole.

    `keeps_open` says whether the connection may carry another request: the server keeps it alive
    and has sent nothing after the answer.
    """

    def __init__(self) -> None:
        self.keeps_open = False
        self._data = bytearray()
        self._at = 0
        self._is_whole = False
        self._is_closed = False
        self._steps: Steps | None = None

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes, and return the answer when it is whole. Raises `Malformed`."""
        if self._is_whole:
            self.keeps_open = self.keeps_open and not data
            return None
        return (self._steps is None and self._at_once(data)) or self._advance(data)

    def end(self) -> Answer:
        """Return the answer if the end of the connection makes it whole, else raise `Malformed`."""
        self._is_closed = True
        answer = self._advance(b"")
        if answer is None:
            said = "in the middle of" if self._data else "without"
            raise Malformed(f"the connection was closed {said} an answer")
        return answer

    def _at_once(self, data: bytes) -> Answer | None:
        """Read an answer that came in one piece, as most do."""
        end = data.find(b"\r\n\r\n", 0, LONGEST_HEAD_BYTES)
        if end < 0:
            return None
        head = parse_head(data[:end])
        if head.status < 200 or body_framing(head) != len(data) - end - 4:
            return None
        return self._done(head, data[end + 4 :])

    def _done(self, head: Head, body: bytes) -> Answer:
        self._is_whole = True
        self.keeps_open = head.keeps_open and self._at == len(self._data)
        return Answer(head.status, head.headers, body)

    def _advance(self, data: bytes) -> Answer | None:
        self._data += data
        self._steps = self._steps or self._read()
        try:
            next(self._steps)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        return None

    def _read(self) -> Steps:
        head = parse_head((yield from self._up_to(b"\r\n\r\n", LONGEST_HEAD_BYTES)))
        while head.status < 200:
            left_bytes = LONGEST_HEAD_BYTES - self._at
            head = parse_head((yield from self._up_to(b"\r\n\r\n", left_bytes)))
        match body_framing(head):
            case "chunked":
                body = yield from self._chunks()
            case "until closed":
                body = yield from self._rest()
                head = head._replace(keeps_open=False)
            case length:
                body = yield from self._exactly(length)
        return self._done(head, body)

    def _up_to(self, mark: bytes, longest_bytes: int) -> Generator[None, None, bytes]:
        """Return the bytes before a mark, and skip the mark."""
        while (end := self._data.find(mark, self._at, self._at + longest_bytes)) < 0:
            if len(self._data) - self._at >= longest_bytes:
                raise Malformed("the answer has an endless line or head")
            yield
        line = bytes(self._data[self._at : end])
        self._at = end + len(mark)
        return line

    def _exactly(self, length: int) -> Generator[None, None, bytes]:
        end = self._at + length
        while len(self._data) < end:
            yield
        part = bytes(self._data[self._at : end])
        self._at = end
        return part

    def _rest(self) -> Generator[None, None, bytes]:
        while not self._is_closed:
            _check_length(len(self._data) - self._at)
            yield
        return (yield from self._exactly(len(self._data) - self._at))

    def _chunks(self) -> Generator[None, None, bytes]:
        body = bytearray()
        while size := _chunk_size((yield from self._up_to(b"\r\n", _LONGEST_LINE_BYTES))):
            _check_length(len(body) + size)
            body += yield from self._exactly(size)
            if (yield from self._exactly(2)) != b"\r\n":
                raise Malformed("a chunk does not end where it says")
        trailers = self._at + LONGEST_HEAD_BYTES
        while (yield from self._up_to(b"\r\n", trailers - self._at)):
            pass
        return bytes(body)


def parse_head(data: bytes) -> Head:
    """Read the head of an answer, without the empty line at its end."""
    lines = data.decode("latin-1").split("\r\n")
    if _has_break(lines):
        raise Malformed("a line of the answer's head is broken")
    start = _START.fullmatch(lines[0])
    if start is None:
        raise Malformed(f"the answer begins with {lines[0][:50]!r}")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or " " in name or "\t" in name:
            raise Malformed(f"the answer has a header {line[:50]!r}")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Head(int(start[2]), headers, _keeps_open(start[1], headers))


def body_framing(head: Head) -> int | Literal["chunked", "until closed"]:
    """Tell where the body ends: after so many bytes, by chunks, or when the server closes."""
    coding = head.headers.get("transfer-encoding")
    length = head.headers.get("content-length")
    if head.status in _WITHOUT_BODY:
        return 0
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise Malformed(f"the answer is coded as {coding[:50]!r} of length {length}")
        return "chunked"
    if length is None:
        return "until closed"
    if not length.isdecimal() or len(length) > 12:
        raise Malformed(f"the answer has the length {length[:50]!r}")
    return _check_length(int(length))


def _keeps_open(minor_version: str, headers: Mapping[str, str]) -> bool:
    connection = headers.get("connection", "").lower()
    if minor_version == "0":
        return connection == "keep-alive"
    return "close" not in connection


def _chunk_size(line: bytes) -> int:
    found = _SIZE.fullmatch(line)
    if found is None:
        raise Malformed(f"a chunk has the size {line[:50]!r}")
    return int(found[1], 16)


def _check_length(length: int) -> int:
    if length > _LARGEST_BODY_BYTES:
        raise Malformed(f"the answer has {length} bytes or more")
    return length
