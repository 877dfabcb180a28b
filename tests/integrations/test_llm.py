"""Calls of models through the real SDKs, against a server that speaks their APIs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate
from typing import Any

import anthropic
import openai
import pytest

from tests.integrations.llm_callers import (
    KINDS,
    MAX_TOKENS,
    LlmCaller,
    close,
    events_of,
    given,
    llm_caller,
)
from tests.support.model_server import (
    CACHED_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    PARTS,
    RETRY_AFTER_S,
    TEXT,
    ModelServer,
    model_server,
)
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, ValidationError
from zae_limiter.integrations import answer_to
from zae_limiter.integrations.llm import (
    LlmTerms,
    ProviderPace,
    ProviderPaused,
    TokenUsage,
    four_bytes_a_token,
)
from zae_limiter.integrations.llm.dialects import ChatDialect, MessagesDialect, ResponsesDialect
from zae_limiter.integrations.llm.meter import CallMeter
from zae_limiter.integrations.openai import limit_openai

USED = (1, INPUT_TOKENS + OUTPUT_TOKENS)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


def name_of(kind: tuple[str, bool]) -> str:
    return f"{kind[0]}-{'async' if kind[1] else 'sync'}"


@pytest.fixture(params=KINDS, ids=name_of)
async def caller(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[LlmCaller]:
    api, is_async = request.param
    async with llm_caller(api, server.url, is_async=is_async) as found:
        yield found


@pytest.fixture(params=KINDS, ids=name_of)
async def quick(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[LlmCaller]:
    """A caller whose SDK does not try again."""
    api, is_async = request.param
    async with llm_caller(api, server.url, is_async=is_async, max_retries=0) as found:
        yield found


def said_by(events: list[Any]) -> str:
    """The text of a stream, whatever the API."""
    said = ""
    for event in events:
        choices = getattr(event, "choices", None)
        delta = choices[0].delta if choices else getattr(event, "delta", None)
        said += next(
            (t for t in (getattr(delta, name, None) for name in ("content", "text")) if t),
            delta if isinstance(delta, str) else "",
        )
    return said


async def test_a_call_is_charged_the_usage_that_its_answer_reports(caller: LlmCaller) -> None:
    await caller.create("plain")
    assert await caller.charged("plain") == USED


async def test_a_stream_is_charged_the_usage_that_it_reports(caller: LlmCaller) -> None:
    events = await events_of(await caller.create("plain", stream=True))
    assert said_by(events) == TEXT
    assert await caller.charged("plain") == USED


async def test_an_answer_without_usage_is_charged_as_counted(caller: LlmCaller) -> None:
    if caller.api == "messages":  # its answers always have usage
        return
    expected = (1, caller.prompt_tokens + four_bytes_a_token(TEXT))
    await caller.create("silent")
    assert await caller.charged("silent") == expected
    await events_of(await caller.create("silent", stream=True))
    assert await caller.charged("silent") == (2, 2 * expected[1])


async def first_part(stream: Any) -> str:
    """Read a stream until it has said something."""
    while not (said := said_by(await events_of(stream, 1))):
        pass
    return said


def as_far_as_it_went(caller: LlmCaller) -> tuple[int, int]:
    """The charge for the first part of a stream. Anthropic begins with the tokens of the prompt."""
    prompt = INPUT_TOKENS if caller.api == "messages" else caller.prompt_tokens
    return 1, prompt + four_bytes_a_token(PARTS[0])


async def test_a_stream_that_is_closed_is_charged_as_far_as_it_went(caller: LlmCaller) -> None:
    stream = await caller.create("slow", stream=True)
    assert await first_part(stream) == PARTS[0]
    await close(stream)
    assert await caller.charged("slow") == as_far_as_it_went(caller)
    await close(stream)
    assert await caller.charged("slow") == as_far_as_it_went(caller)


async def test_a_stream_that_breaks_is_charged_as_far_as_it_went(caller: LlmCaller) -> None:
    stream = await caller.create("broken", stream=True)
    assert await first_part(stream) == PARTS[0]
    # The SDK of Anthropic raises here what its HTTP client does.
    with pytest.raises(Exception, match=r"Connection error|peer closed"):
        await events_of(stream)
    assert await caller.charged("broken") == as_far_as_it_went(caller)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_a_reader_that_is_cancelled_pays_for_what_was_streamed(
    api: str, server: ModelServer
) -> None:
    async with llm_caller(api, server.url, is_async=True) as caller:
        stream = await caller.create("slow", stream=True)
        await first_part(stream)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await events_of(stream)
        assert await caller.charged("slow") == as_far_as_it_went(caller)
        await close(stream)


async def test_a_call_that_the_provider_fails_is_not_charged(quick: LlmCaller) -> None:
    for model in ("refused", "failing"):
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            await quick.create(model)
        assert await quick.charged(model) == (0, 0)


async def test_retries_of_the_sdk_are_one_charge(caller: LlmCaller, server: ModelServer) -> None:
    server.calls["busy-once"] = 0
    await caller.create("busy-once")
    assert server.calls["busy-once"] == 2
    assert await caller.charged("busy-once") == USED


@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_a_429_that_the_sdk_answers_by_itself_holds_other_calls(
    api: str, server: ModelServer
) -> None:
    server.calls["busy-once"] = 0
    async with llm_caller(api, server.url, is_async=True) as caller:
        under_way = asyncio.ensure_future(caller.create("busy-once"))
        held = False
        while not under_way.done():
            held = held or caller.pace.wait_s("busy-once") > 0
            await asyncio.sleep(0)
        await under_way
    assert held


async def test_a_provider_that_says_429_is_not_called_before_its_time(
    quick: LlmCaller, server: ModelServer
) -> None:
    server.calls["busy"] = 0
    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
        await quick.create("busy")
    with pytest.raises(ProviderPaused) as paused:
        await quick.create("busy")
    assert 0 < paused.value.retry_after_seconds <= RETRY_AFTER_S
    assert server.calls["busy"] == 1
    assert await quick.charged("busy") == (0, 0)
    await quick.create("plain")


def test_a_paused_provider_is_answered_with_503_and_retry_after() -> None:
    answer = answer_to(ProviderPaused("gpt-4", 29.2))
    assert answer is not None
    assert (answer.status, dict(answer.fields)["Retry-After"]) == (503, "30")


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_call_with_a_timeout_waits_for_its_provider(
    is_async: bool, server: ModelServer
) -> None:
    terms = LlmTerms(timeout=10)
    async with llm_caller("chat", server.url, is_async=is_async, terms=terms) as caller:
        caller.pace.hold("plain", 0.05)
        await caller.create("plain")
        assert caller.pace.wait_s("plain") == 0
        assert await caller.charged("plain") == USED


async def test_a_caller_that_gives_up_waiting_is_charged_what_was_reserved(
    quick: LlmCaller,
) -> None:
    with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)):
        await quick.create("stuck", timeout=0.05)
    assert await quick.charged("stuck") == (1, quick.prompt_tokens + MAX_TOKENS)


async def test_a_stream_may_be_asked_for_by_any_true_value(caller: LlmCaller) -> None:
    stream = await caller.create("slow", stream=1)
    await first_part(stream)
    await close(stream)
    assert await caller.charged("slow") == as_far_as_it_went(caller)


TOOL_CALL = {"name": "look_up", "arguments": '{"word": "token"}'}


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        (ChatDialect(), {"choices": [{"message": {"tool_calls": [{"function": TOOL_CALL}]}}]}),
        (ChatDialect(), {"choices": [{"delta": {"tool_calls": [{"function": TOOL_CALL}]}}]}),
        (ChatDialect(), {"choices": [{"message": {"function_call": TOOL_CALL}}]}),
        (ResponsesDialect(), {"output": [{"type": "function_call", **TOOL_CALL}]}),
        (ResponsesDialect(), {"output": [{"type": "custom_tool_call", "input": "x" * 24}]}),
        (
            ResponsesDialect(),
            {"output": [{"type": "reasoning", "summary": [{"text": "x" * 24}]}]},
        ),
        (
            MessagesDialect(),
            {"content": [{"type": "tool_use", "name": "look_up", "input": {"word": "token"}}]},
        ),
    ],
)
def test_calls_of_tools_are_counted_where_no_usage_is_reported(
    dialect: ChatDialect | ResponsesDialect | MessagesDialect, answer: Any
) -> None:
    assert len(dialect.whole(answer).text) == 24


async def test_a_call_above_its_limit_is_refused_before_it_is_sent(
    caller: LlmCaller, server: ModelServer
) -> None:
    server.calls.clear()
    cap = "max_output_tokens" if caller.api == "responses" else "max_tokens"
    with pytest.raises(RateLimitExceeded):
        await caller.create("plain", **{cap: 2_000_000})
    assert not server.calls


async def test_calls_may_be_charged_to_another_entity(caller: LlmCaller) -> None:
    caller.client, caller.entity_id = caller.client.for_entity("key-2"), "key-2"
    await caller.create("plain")
    assert await caller.charged("plain") == USED


async def test_methods_that_are_not_charged_are_not_offered(caller: LlmCaller) -> None:
    with pytest.raises(AttributeError, match="is not charged"):
        _ = caller.client.models
    with pytest.raises(AttributeError, match="is not charged"):
        _ = caller.client.with_options


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("model", ["plain", "slow", "broken"])
async def test_the_stream_block_of_anthropic_is_charged(
    is_async: bool, model: str, server: ModelServer
) -> None:
    async with llm_caller("messages", server.url, is_async=is_async) as caller:
        block = caller.client.messages.stream(**caller.arguments(model))
        stream = await block.__aenter__() if is_async else block.__enter__()
        if model == "plain":
            assert said_by(await events_of(stream)) == TEXT
        else:
            await first_part(stream)
        await (
            block.__aexit__(None, None, None) if is_async else given(block.__exit__(*[None] * 3))
        )
        expected = USED if model == "plain" else as_far_as_it_went(caller)
        assert await caller.charged(model) == expected


async def test_a_refused_stream_block_is_never_sent(server: ModelServer) -> None:
    async with llm_caller("messages", server.url, is_async=True) as caller:
        server.calls.clear()
        arguments = {**caller.arguments("plain"), "max_tokens": 2_000_000}
        with pytest.raises(RateLimitExceeded):
            async with caller.client.messages.stream(**arguments):
                raise AssertionError("it was let in")
        assert not server.calls


async def test_embeddings_are_charged_their_prompt(server: ModelServer) -> None:
    async with llm_caller("chat", server.url, is_async=True) as caller:
        await caller.client.embeddings.create(
            model="plain", input=["a text", "another"], encoding_format="float"
        )
        assert await caller.charged("plain") == (1, INPUT_TOKENS)


async def test_a_stream_that_asks_for_its_usage_sees_it(server: ModelServer) -> None:
    async with llm_caller("chat", server.url, is_async=True) as caller:
        plain = await events_of(await caller.create("plain", stream=True))
        assert all(event.choices for event in plain)
        asked = await events_of(
            await caller.create("plain", stream=True, stream_options={"include_usage": True})
        )
        assert asked[-1].usage.total_tokens == INPUT_TOKENS + OUTPUT_TOKENS
        assert await caller.charged("plain") == (2, 2 * USED[1])


async def test_prompt_and_answer_may_have_limits_of_their_own(server: ModelServer) -> None:
    terms = LlmTerms(
        cost=lambda used: {"in": used.input_tokens - used.cached_tokens, "out": used.output_tokens},
        resource=lambda model: f"llm/{model}",
        limits=["in: 1000/day", "out: 1000/day"],
    )
    for api in ("chat", "responses", "messages"):
        async with llm_caller(api, server.url, is_async=True, terms=terms) as caller:
            await caller.create("plain")
            limits = [Limit.parse("in: 1000/day"), Limit.parse("out: 1000/day")]
            found = await given(caller.limiter.available("key-1", "llm/plain", limits))
        assert found == {"in": 1000 - INPUT_TOKENS + CACHED_TOKENS, "out": 1000 - OUTPUT_TOKENS}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"messages": [{"content": "12345678"}], "max_tokens": 5}, (2, 5)),
        ({"prompt": "1234", "max_tokens": 5, "n": 3}, (1, 15)),
        ({"input": [1, 2, 3]}, (3, 1024)),
        ({"input": "\u00e4" * 4, "max_output_tokens": -1}, (2, 0)),
        ({"messages": [{"content": [{"image_url": {"url": "data:" + "x" * 99}}]}]}, (0, 1024)),
        ({"messages": [{"source": {"data": "x" * 99}}], "max_tokens": "many"}, (0, 1024)),
        ({"system": "1234", "tools": [{"description": "1234"}]}, (2, 1024)),
        ({}, (0, 1024)),
    ],
)
def test_an_estimate_is_the_prompt_and_the_longest_answer(
    arguments: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert LlmTerms().estimate(arguments) == TokenUsage(*expected)


def test_a_usage_without_a_prompt_is_charged_the_prompt_as_estimated() -> None:
    asked = {"model": "gpt-4", "messages": [{"content": "12345678"}], "max_tokens": 5}
    meter = CallMeter(LlmTerms(), ProviderPace(), ChatDialect(), asked)
    meter.hear_answer({"usage": {"prompt_tokens": 0, "completion_tokens": 3}})
    assert meter.amounts() == {"rpm": 1, "tpm": 2 + 3}


@pytest.mark.parametrize("dialect", [ChatDialect(), ResponsesDialect()])
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, TokenUsage(9, 2)),
        ({"input_tokens": 9, "output_tokens": 2}, TokenUsage(9, 2)),
        (
            {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}},
            TokenUsage(9, 0, 4),
        ),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
        ({"prompt_tokens": -5, "completion_tokens": None}, None),
        ({"some": "thing"}, None),
        (None, None),
    ],
)
def test_a_usage_is_read_by_any_name_and_zeros_are_none(
    dialect: ChatDialect | ResponsesDialect, usage: Any, expected: TokenUsage | None
) -> None:
    heard = dialect.whole({"usage": usage})
    assert (heard.usage, heard.is_final) == (expected, expected is not None)


@pytest.mark.parametrize(
    ("status", "headers", "held_s"),
    [
        (200, {"retry-after": "9"}, 0),
        (429, {"retry-after": "9"}, 9),
        (429, {"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        (429, {}, 1),
        (429, {"retry-after": "nan"}, 1),
        (429, {"retry-after": "86400"}, 60),
        (429, {"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}, 0),
        (429, {"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"}, 60),
        (429, {"retry-after": "Fri, 01 Jan 2100 00:00:00 -0000"}, 60),
        (429, {"retry-after": f"{10**20} Jan 2100 00:00:00 GMT"}, 1),
        (429, {"retry-after": f"Fri, 01 Jan 2100 00:00:00 +{10**20}"}, 1),
        (529, {"retry-after": "9"}, 9),
        (503, {}, 0),
    ],
)
def test_a_provider_says_when_it_wants_to_be_called(
    status: int, headers: dict[str, str], held_s: float
) -> None:
    pace = ProviderPace()
    pace.note("gpt-4", status, headers)
    assert held_s - 0.5 <= pace.wait_s("gpt-4") <= held_s
    assert pace.wait_s("gpt-3") == 0


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_date_without_a_zone_is_universal_time(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace, soon = ProviderPace(), formatdate(time.time() + 30)
    assert soon.endswith("-0000")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        pace.note("gpt-4", 429, {"retry-after": soon})
        assert 20 < pace.wait_s("gpt-4") <= 30
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_shorter_hold_does_not_end_a_longer_one() -> None:
    pace = ProviderPace()
    pace.hold("gpt-4", 30)
    pace.hold("gpt-4", 0.1)
    assert pace.wait_s("gpt-4") > 1


async def test_a_client_and_its_limiter_have_the_same_driver(server: ModelServer) -> None:
    client = openai.OpenAI(base_url=server.url, api_key="k")
    limiter = RateLimiter(repository=await Repository.open(url="memory://"))
    with pytest.raises(ValidationError, match="must be a SyncRateLimiter"):
        limit_openai(client, limiter, "key-1")
    client.close()
    await limiter.close()
