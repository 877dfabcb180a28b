from __future__ import annotations

import datetime
import string

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.signing import sign
from zae_limiter.backends.dynamodb.wire.endpoint import parse_endpoint
from zae_limiter.backends.dynamodb.wire.signer import Credentials

_WORDS = st.text(string.ascii_letters + string.digits + "/+=", min_size=1, max_size=60)
_CREDENTIALS = st.builds(Credentials, _WORDS, _WORDS, st.none() | _WORDS)
_HOSTS = st.sampled_from(
    [
        "https://dynamodb.us-east-1.amazonaws.com",
        "https://DynamoDB.cn-north-1.amazonaws.com.cn:443",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
        "http://localhost:80",
        "https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com:8443",
    ]
)
_SEGMENTS = st.sampled_from(["", ".", "..", "db", "a b", "a%20b", "ä", "~x", "v1.0", "a+b", "(c)"])
_PATHS = st.lists(_SEGMENTS, max_size=5).map(lambda segments: "/" + "/".join(segments))
_HEADERS = st.dictionaries(
    st.sampled_from(["content-type", "x-amz-target", "x-amz-meta-a"]),
    st.text(string.ascii_letters + " ;=.", min_size=1, max_size=30),
)
_TIMES = st.integers(0, 4_000_000_000)


def _botocore_signs(
    credentials: Credentials,
    region: str,
    url: str,
    headers: dict[str, str],
    body: bytes,
    at_s: int,
) -> dict[str, str]:
    request = AWSRequest("POST", url, headers=headers, data=body)
    signer = SigV4Auth(ReadOnlyCredentials(*credentials), "dynamodb", region)
    moment = datetime.datetime.fromtimestamp(at_s, datetime.UTC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.auth.get_current_datetime", lambda: moment)
        signer.add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


@given(
    credentials=_CREDENTIALS,
    region=st.sampled_from(["us-east-1", "eu-central-1", "us-gov-west-1"]),
    host=_HOSTS,
    path=_PATHS,
    headers=_HEADERS,
    body=st.binary(max_size=200),
    at_s=_TIMES,
)
def test_our_signature_equals_botocores(
    credentials: Credentials,
    region: str,
    host: str,
    path: str,
    headers: dict[str, str],
    body: bytes,
    at_s: int,
) -> None:
    endpoint = parse_endpoint(host + path)
    ours = sign(credentials, region, endpoint.host, endpoint.path, headers, body, at_s)
    url = endpoint.origin + endpoint.path
    theirs = _botocore_signs(credentials, region, url, headers, body, at_s)
    assert ours == {**theirs, "host": endpoint.host}


@settings(max_examples=50)
@given(_HOSTS, st.lists(st.sampled_from(["", ".", "..", "db", "~x", "v1.0"]), max_size=5))
def test_our_signature_of_a_path_that_is_not_normal_equals_botocores(
    host: str, segments: list[str]
) -> None:
    url = host + "/" + "/".join(segments)
    endpoint = parse_endpoint(url)
    credentials = Credentials("key", "secret")
    ours = sign(credentials, "us-east-1", endpoint.host, endpoint.path, {}, b"{}", 0)
    theirs = _botocore_signs(credentials, "us-east-1", url, {}, b"{}", 0)
    assert ours["authorization"] == theirs["authorization"]


def test_another_day_or_secret_or_region_has_another_signature() -> None:
    def signature(secret: str, region: str, at_s: int) -> str:
        signed = sign(Credentials("key", secret), region, "host", "/", {}, b"", at_s)
        return signed["authorization"].rpartition("=")[2]

    requests = [("a", "r", 0), ("b", "r", 0), ("a", "s", 0), ("a", "r", 86_400), ("a", "r", 1)]
    assert len({signature(*request) for request in requests}) == len(requests)
