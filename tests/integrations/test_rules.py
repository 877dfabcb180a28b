"""Rules: which calls are charged, to whom, how much."""

from __future__ import annotations

from typing import Any

import pytest

from zae_limiter import InvalidIdentifierError, InvalidLimitError, Limit, ValidationError
from zae_limiter.core.validation import validate_identifier
from zae_limiter.integrations import Call, Rule, by_address, by_header, exempt
from zae_limiter.integrations.call import call_of_asgi, call_of_wsgi
from zae_limiter.integrations.rule import reservation_of


def call(path: str = "/v1/chat", method: str = "POST", **headers: str) -> Call:
    return Call(method, path, "", headers, "192.0.2.1", None)


def test_the_first_rule_that_covers_a_call_decides() -> None:
    rules = [
        exempt("/health", "/static/*"),
        Rule("chat", path="/v1/chat", methods=["POST"], cost={"rpm": 1}),
        Rule("rest", path="/v1/*"),
    ]
    found = [reservation_of(rules, call(*each)) for each in [("/v1/chat",), ("/v1/chat", "GET")]]
    assert [each and each["resource"] for each in found] == ["chat", "rest"]
    for path in ("/health", "/static/a/b.css", "/other"):
        assert reservation_of(rules, call(path)) is None


@pytest.mark.parametrize("methods", ["get", "GET", ["get"], ("Get", "POST")])
def test_a_rule_for_get_covers_head_however_it_is_written(methods: str | list[str]) -> None:
    rule = Rule("api", methods=methods)
    assert [rule.covers(call(method=each)) for each in ("GET", "HEAD", "PUT")] == [
        True,
        True,
        False,
    ]
    assert not Rule("api", methods=["post"]).covers(call(method="HEAD"))


@pytest.mark.parametrize("cost", [None, 5, "rpm", [("rpm", 1)]])
def test_a_cost_that_is_no_mapping_is_named(cost: Any) -> None:
    with pytest.raises(ValidationError, match=r"cost: must be amounts by limit, not"):
        Rule("api", cost=lambda call: cost).reservation(call())


def test_key_cost_and_resource_may_depend_on_the_call() -> None:
    rule = Rule(
        lambda call: call.path.strip("/"),
        key=by_header("X-Api-Key"),
        cost=lambda call: {"rpm": 1, "tpm": int(call.headers.get("x-tokens", "0"))},
        exempt=lambda call: "x-free" in call.headers,
        timeout=2,
    )
    headers = {"x-api-key": "key-1", "x-tokens": "30"}
    assert rule.reservation(call(**headers)) == {
        "entity_id": "key-1",
        "resource": "v1/chat",
        "consume": {"rpm": 1, "tpm": 30},
        "limits": None,
        "timeout": 2,
    }
    assert rule.reservation(call(**headers, **{"x-free": "yes"})) is None


def test_limits_of_a_rule_may_be_text() -> None:
    wanted = [Limit.per_minute("requests", 100, burst=20)]
    for given in ("100/minute; burst 20", ["100/minute; burst 20"], wanted[0], wanted):
        found = Rule("api", limits=given).reservation(call())
        assert found is not None
        assert (found["limits"], found["consume"]) == (wanted, {"requests": 1})


def test_a_text_that_is_no_limit_is_refused_when_the_rule_is_made() -> None:
    with pytest.raises(InvalidLimitError):
        Rule("api", limits="often")


def test_a_missing_header_never_makes_a_call_free() -> None:
    rule = Rule("api", key=by_header("x-api-key"))
    with pytest.raises(InvalidIdentifierError, match="x-api-key is missing"):
        rule.reservation(call())
    found = Rule("api", key=by_header("x-api-key", otherwise=by_address)).reservation(call())
    assert found is not None
    assert found["entity_id"] == "ip:192.0.2.1"


@pytest.mark.parametrize("address", ["192.0.2.1", "::1", "2001:db8::7", "fe80::1%eth0"])
def test_every_address_is_an_entity_id(address: str) -> None:
    validate_identifier(by_address(Call("GET", "/", "", {}, address, None)))


@pytest.mark.parametrize("address", [None, ""])
def test_a_client_without_an_address_is_refused(address: str | None) -> None:
    with pytest.raises(InvalidIdentifierError, match="no address"):
        by_address(Call("GET", "/", "", {}, address, None))


def test_a_header_that_is_sent_twice_is_the_entity_id_of_nobody() -> None:
    """An application may authenticate the first of two keys, and the limiter charge the second."""
    twice = [(b"x-api-key", b"key-1"), (b"X-Api-Key", b"key-2")]
    found = call_of_asgi({"type": "http", "path": "/", "headers": twice})
    with pytest.raises(InvalidIdentifierError):
        validate_identifier(by_header("x-api-key")(found))


def test_asgi_and_wsgi_describe_a_request_alike() -> None:
    environ = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "/mounted",
        "PATH_INFO": "/caf\u00e9".encode().decode("latin-1"),
        "QUERY_STRING": "a=1",
        "HTTP_X_API_KEY": "key-1",
        "REMOTE_ADDR": "192.0.2.1",
    }
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/mounted/caf\u00e9",
        "query_string": b"a=1",
        "headers": [(b"X-Api-Key", b"key-1")],
        "client": ("192.0.2.1", 5),
    }
    expected = Call("GET", "/mounted/caf\u00e9", "a=1", {"x-api-key": "key-1"}, "192.0.2.1", None)
    for found in (call_of_wsgi(environ), call_of_asgi(scope)):
        assert (found.method, found.path, found.query) == ("GET", expected.path, "a=1")
        assert (found.headers, found.address) == (expected.headers, expected.address)
