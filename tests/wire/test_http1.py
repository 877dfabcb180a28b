from __future__ import annotations

import http.client
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter.backends.dynamodb.wire.http1 import (
    Incoming,
    Malformed,
    request_bytes,
    request_head,
)
from zae_limiter.backends.dynamodb.wire.protocol import Answer

_NAMES = st.text("abcXYZ019-_", min_size=1, max_size=10).filter(
    lambda name: name.lower() not in {"content-length", "transfer-encoding", "connection"}
)
_VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_categories=["Cc"]))
_HEADERS = st.dictionaries(_NAMES, _VALUES, max_size=4)
_STATUSES = st.integers(200, 599).filter(lambda status: status not in (204, 304))
_BODIES = st.binary(max_size=60)
_CUTS = st.lists(st.integers(0, 400), max_size=6)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message is an answer as a server would send it."""

    status: int
    headers: dict[str, str]
    body: bytes
    framing: str
    cuts: Sequence[int]

    @property
    def data(self) -> bytes:
        head = [f"HTTP/1.1 {self.status} Some Reason"]
        head += [f"{name}:  {value}\t" for name, value in self.headers.items()]
        if self.framing == "length":
            head.append(f"Content-Length: {len(self.body)}")
        if self.framing == "chunked":
            head.append("Transfer-Encoding: Chunked")
        return "\r\n".join([*head, "", ""]).encode("latin-1") + self._coded_body()

    def _coded_body(self) -> bytes:
        if self.framing != "chunked":
            return self.body
        parts = [part for part in _pieces(self.body, self.cuts) if part]
        chunks = [b"%x; why=not\r\n%b\r\n" % (len(part), part) for part in parts]
        return b"".join(chunks) + b"0\r\nX-Trailer: yes\r\n\r\n"

    @property
    def expected(self) -> tuple[int, dict[str, str], bytes]:
        own = {name.lower(): value for name, value in self.headers.items()}
        return self.status, own, self.body


def _messages(*framings: str) -> st.SearchStrategy[_Message]:
    distinct = _HEADERS.filter(lambda found: len({name.lower() for name in found}) == len(found))
    return st.builds(
        _Message, _STATUSES, distinct, _BODIES, st.sampled_from(framings), st.just([7, 20, 21])
    )


def _pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Cut bytes at these places."""
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def _read(data: bytes, cuts: Sequence[int] = ()) -> tuple[Answer | None, Incoming]:
    """Read an answer from bytes that come in pieces."""
    incoming = Incoming()
    answers = [incoming.feed(piece) for piece in _pieces(data, cuts)]
    return next((answer for answer in answers if answer is not None), None), incoming


def _parts(answer: Answer | None) -> tuple[int, dict[str, str], bytes]:
    assert answer is not None
    framing = ("content-length", "transfer-encoding")
    headers = {name: value for name, value in answer.headers.items() if name not in framing}
    return answer.status, headers, answer.body


@given(_messages("length", "chunked"), _CUTS)
def test_an_answer_is_read_however_it_is_cut(message: _Message, cuts: list[int]) -> None:
    answer, incoming = _read(message.data, cuts)
    assert _parts(answer) == message.expected
    assert incoming.keeps_open


@given(_messages("closing"), _CUTS)
def test_an_answer_without_length_lasts_until_the_end(message: _Message, cuts: list[int]) -> None:
    answer, incoming = _read(message.data, cuts)
    assert answer is None
    assert _parts(incoming.end()) == message.expected
    assert not incoming.keeps_open


class _Wire(io.BytesIO):
    """A fake socket has the method that `http.client` calls."""

    def makefile(self, mode: str) -> io.BytesIO:
        return self


@given(_messages("length", "chunked", "closing"))
def test_http_client_reads_each_answer_as_we_do(message: _Message) -> None:
    theirs = http.client.HTTPResponse(_Wire(message.data), method="POST")  # type: ignore[arg-type]
    theirs.begin()
    headers = {name.lower(): value.strip(" \t") for name, value in theirs.getheaders()}
    answer, incoming = _read(message.data)
    assert (answer or incoming.end()) == Answer(theirs.status, headers, theirs.read())


@given(_messages("length", "chunked"), st.integers(1, 400), _CUTS)
def test_part_of_an_answer_is_no_answer(message: _Message, missing: int, cuts: list[int]) -> None:
    answer, incoming = _read(message.data[: -min(missing, len(message.data))], cuts)
    assert answer is None
    with pytest.raises(Malformed, match="was closed"):
        incoming.end()


@given(_messages("length", "chunked"), st.binary(min_size=1, max_size=30))
def test_a_connection_with_bytes_after_the_answer_is_not_used_again(
    message: _Message, more: bytes
) -> None:
    answer, incoming = _read(message.data + more)
    assert _parts(answer) == message.expected
    assert not incoming.keeps_open
    answer, incoming = _read(message.data + more, [len(message.data)])
    assert _parts(answer) == message.expected
    assert not incoming.keeps_open


@given(_messages("length", "chunked", "closing"), st.integers(0, 400), st.binary(max_size=3), _CUTS)
@example(_Message(200, {}, b"x", "length", ()), 0, b"", [1])
def test_damage_is_read_as_something_or_malformed_and_nothing_else(
    message: _Message, at: int, damage: bytes, cuts: list[int]
) -> None:
    place = at % len(message.data)
    damaged = message.data[:place] + damage + message.data[place + 1 :]
    try:
        answer, incoming = _read(damaged, cuts)
        answer = answer or incoming.end()
    except Malformed:
        return
    assert 200 <= answer.status <= 999


@given(st.binary(max_size=200).filter(lambda data: not data.startswith(b"HTTP/1.")), _CUTS)
def test_bytes_that_are_not_http_are_malformed(data: bytes, cuts: list[int]) -> None:
    with pytest.raises(Malformed):
        _read(data, cuts)[1].end()


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/2 200 OK",
        "HTTP/1.2 200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 \u00b2\u00b2\u00b2 OK",
        "HTTP/1.1 200 OK\nx: y",
        "HTTP/1.1 200 OK\rx: y",
        "HTTP/1.1 200 OK\r\nno colon",
        "HTTP/1.1 200 OK\r\n: no name",
        "HTTP/1.1 200 OK\r\nspace before : colon",
        "HTTP/1.1 200 OK\r\nname: value\r\n folded",
        "HTTP/1.1 200 OK\r\ncontent-length: -1",
        "HTTP/1.1 200 OK\r\ncontent-length: +1",
        "HTTP/1.1 200 OK\r\ncontent-length: 1_0",
        "HTTP/1.1 200 OK\r\ncontent-length: \u00b2",
        "HTTP/1.1 200 OK\r\ncontent-length: 0x1",
        "HTTP/1.1 200 OK\r\ncontent-length:",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2",
        "HTTP/1.1 200 OK\r\ncontent-length: 999999999999",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_malformed(head: str) -> None:
    with pytest.raises(Malformed):
        _read(head.encode("latin-1") + b"\r\n\r\n")


@pytest.mark.parametrize(
    "chunks",
    [
        b"\r\n",
        b"x\r\n",
        b"-1\r\n",
        b"0x1\r\n",
        b"1 1\r\n",
        b"1\r\nab\r\n",
        b"fffffffff\r\n",
        b"ffffffff\r\n",
    ],
)
def test_a_chunk_that_can_be_read_in_two_ways_is_malformed(chunks: bytes) -> None:
    with pytest.raises(Malformed):
        _read(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)


@pytest.mark.parametrize(
    ("endless", "part"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n"),
    ],
)
def test_an_endless_answer_is_malformed_before_it_fills_the_memory(
    endless: bytes, part: bytes
) -> None:
    incoming = Incoming()
    incoming.feed(endless)
    piece = part * (4096 // len(part))
    with pytest.raises(Malformed, match="endless"):
        _feed_often(incoming, piece)


def _feed_often(incoming: Incoming, piece: bytes) -> None:
    for _ in range(100):
        assert incoming.feed(piece) is None


@pytest.mark.parametrize(
    ("head", "keeps_open"),
    [
        ("HTTP/1.1 200 OK", True),
        ("HTTP/1.1 200 OK\r\nConnection: Keep-Alive", True),
        ("HTTP/1.1 200 OK\r\nConnection: Close", False),
        ("HTTP/1.1 200 OK\r\nConnection: foo, close", False),
        ("HTTP/1.1 200 OK\r\nConnection: foo\r\nConnection: close", False),
        ("HTTP/1.0 200 OK", False),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive", True),
    ],
)
def test_the_other_end_says_whether_the_connection_stays_open(head: str, keeps_open: bool) -> None:
    answer, incoming = _read(f"{head}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    assert answer is not None
    assert answer.body == b"{}"
    assert incoming.keeps_open is keeps_open


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_content_has_no_body(status: int) -> None:
    answer, incoming = _read(f"HTTP/1.1 {status} None\r\nContent-Length: 5\r\n\r\n".encode())
    assert answer is not None
    assert (answer.status, answer.body) == (status, b"")
    assert incoming.keeps_open


def test_interim_answers_are_skipped() -> None:
    before = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    answer, incoming = _read(before + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    assert answer == Answer(200, {"content-length": "2"}, b"{}")
    assert incoming.keeps_open


def test_a_header_that_comes_twice_is_one_list() -> None:
    answer, _ = _read(b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\ncontent-length: 0\r\n\r\n")
    assert answer is not None
    assert answer.headers["a"] == "1, 2"


@given(_HEADERS, _BODIES)
def test_a_request_arrives_as_it_was_meant(headers: dict[str, str], body: bytes) -> None:
    data = request_bytes(request_head("/a%20b", headers), body)
    head, _, rest = data.partition(b"\r\n\r\n")
    start, *lines = head.decode().split("\r\n")
    assert start == "POST /a%20b HTTP/1.1"
    assert lines == [*(f"{n}: {v}" for n, v in headers.items()), f"content-length: {len(body)}"]
    assert rest == body


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\n", "a\r", "\r\n"])
def test_a_header_cannot_break_out_of_its_line(value: str) -> None:
    for headers in ({"token": value}, {value: "token"}):
        with pytest.raises(Malformed, match="line break"):
            request_head("/", headers)
