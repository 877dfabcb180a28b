"""The functions for proxies need no network."""

from __future__ import annotations

import pickle
from contextlib import suppress

import pytest
from botocore.httpsession import get_cert_path
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.backends.dynamodb.wire.endpoint import Endpoint, parse_endpoint
from zae_limiter.backends.dynamodb.wire.http1 import Malformed
from zae_limiter.backends.dynamodb.wire.proxy import (
    Proxy,
    ProxyRefused,
    connect_request,
    is_tunnel_open,
    parse_proxy,
)

_CA_BUNDLE: str = get_cert_path(True)
_OPEN = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\ncontent-length: 7\r\nvia: x\r\n\r\n"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://proxy:3128", ("proxy", 3128)),
        ("http://proxy", ("proxy", 80)),
        ("https://proxy/", ("proxy", 443)),
        ("HTTP://Proxy:1/ignored", ("proxy", 1)),
        ("proxy:3128", ("proxy", 3128)),
        ("//proxy:3128", ("proxy", 3128)),
        ("user:pw@proxy:3128", ("proxy", 3128)),
        ("http://[::1]:3128", ("::1", 3128)),
    ],
)
def test_a_proxy_url_has_an_address(url: str, address: tuple[str, int]) -> None:
    proxy = parse_proxy(url, _CA_BUNDLE)
    assert proxy.address == address
    assert (proxy.tls is not None) == url.startswith("https:")


@pytest.mark.parametrize(
    ("userinfo", "basic"),
    [
        ("", None),
        ("@", None),
        ("user@", "Basic dXNlcjo="),
        ("user:pass@", "Basic dXNlcjpwYXNz"),
        ("a%40b:c%3Ad%0A@", "Basic YUBiOmM6ZAo="),
        ("us\udcffer:@", "Basic dXP/ZXI6"),
    ],
)
def test_credentials_of_a_proxy_url_are_decoded_and_sent(userinfo: str, basic: str | None) -> None:
    proxy = parse_proxy(f"http://{userinfo}proxy:1", _CA_BUNDLE)
    assert proxy.headers.get("proxy-authorization") == basic


def test_a_proxy_shows_no_credentials() -> None:
    proxy = parse_proxy("http://user:pass@proxy:1", _CA_BUNDLE)
    endpoint = Endpoint("http", "db", "/", proxy=proxy)
    shown = f"{proxy} {proxy!r} {endpoint} {endpoint!r}"
    assert not any(secret in shown for secret in ("user", "pass", "dXNlcjpwYXNz"))


def test_a_tunnel_is_asked_for_by_host_and_port() -> None:
    proxy = Proxy(("proxy", 1), headers={"proxy-authorization": "Basic x"})
    assert connect_request(proxy, parse_endpoint("https://db.invalid").address) == (
        b"CONNECT db.invalid:443 HTTP/1.1\r\nhost: db.invalid:443\r\n"
        b"proxy-authorization: Basic x\r\n\r\n"
    )
    assert connect_request(Proxy(("proxy", 1)), ("::1", 8000)).startswith(b"CONNECT [::1]:8000 ")


def test_a_tunnel_is_open_after_the_last_byte_of_a_successful_head() -> None:
    assert [is_tunnel_open(_OPEN[:end]) for end in range(len(_OPEN))] == [False] * len(_OPEN)
    assert is_tunnel_open(_OPEN)


def test_bytes_after_a_successful_head_are_malformed() -> None:
    with pytest.raises(Malformed):
        is_tunnel_open(_OPEN + b"x")


@pytest.mark.parametrize("status", [300, 403, 407, 599])
def test_another_status_refuses_the_tunnel(status: int) -> None:
    with pytest.raises(ProxyRefused, match=str(status)) as raised:
        is_tunnel_open(b"HTTP/1.1 %d\r\n\r\nbody" % status)
    revived = pickle.loads(pickle.dumps(raised.value))
    assert (revived.status, str(revived)) == (status, str(raised.value))


@given(st.binary(max_size=200))
def test_random_bytes_of_a_proxy_open_no_tunnel(data: bytes) -> None:
    with suppress(Malformed, ProxyRefused):
        assert not is_tunnel_open(data)


def test_a_head_without_end_is_malformed_before_it_fills_the_memory() -> None:
    with pytest.raises(Malformed, match="endless"):
        is_tunnel_open(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000)
