from __future__ import annotations

import pytest

from zae_limiter.backends.dynamodb.wire.endpoint import parse_endpoint
from zae_limiter.core.exceptions import ValidationError


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("http://localhost:8000", "http://localhost:8000", "/"),
        ("http://LOCALHOST:80/", "http://localhost", "/"),
        ("https://db.example:443/x/", "https://db.example", "/x/"),
        ("http://[::1]:8000//a/./b/../c", "http://[::1]:8000", "/a/c"),
        ("http://localhost/a b", "http://localhost", "/a%20b"),
    ],
)
def test_an_endpoint_is_understood(url: str, origin: str, path: str) -> None:
    endpoint = parse_endpoint(url)
    assert (endpoint.origin, endpoint.path) == (origin, path)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:8000", ("localhost", 8000)),
        ("http://localhost/x", ("localhost", 80)),
        ("https://db.example/", ("db.example", 443)),
        ("https://[::1]:8000", ("::1", 8000)),
        ("http://[::1]", ("::1", 80)),
    ],
)
def test_an_endpoint_has_an_address(url: str, address: tuple[str, int]) -> None:
    assert parse_endpoint(url).address == address


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://host", "http://", "http://h?x=1", "http://u:p@h", "http://h:x"],
)
def test_a_url_that_names_no_endpoint_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="endpoint_url"):
        parse_endpoint(url)
