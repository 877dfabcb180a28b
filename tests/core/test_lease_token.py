from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter import ValidationError
from zae_limiter.core.lease_token import LeaseToken, decode_token, encode_token
from zae_limiter.core.receipts import ReceiptKey
from zae_limiter.core.validation import is_idempotency_key

NAMES = st.text(min_size=1, max_size=255).filter(is_idempotency_key)
TOKENS = st.builds(
    lambda namespace_id, kind, name, holder: LeaseToken(
        ReceiptKey(namespace_id, f"{kind}#{name}"), holder
    ),
    st.from_regex(r"[A-Za-z0-9_-]{1,22}", fullmatch=True),
    st.sampled_from(["KEY", "LEASE"]),
    NAMES,
    st.from_regex(r"[0-9a-f]{1,40}\+?", fullmatch=True),
)


@quick
@given(TOKENS)
@example(LeaseToken(ReceiptKey("n" * 22, "KEY#" + "\U0001f680" * 255), "f" * 40))
def test_a_token_is_read_back_as_it_was_written(token: LeaseToken) -> None:
    text = encode_token(token)
    assert text.isascii()
    assert decode_token(text) == token


@quick
@given(st.text() | st.text().map(lambda text: f"zael1.{text}") | st.binary() | st.none())
def test_any_other_value_is_refused_as_a_token(value: object) -> None:
    with pytest.raises(ValidationError, match="Invalid token"):
        decode_token(value)


@quick
@given(TOKENS, st.data())
def test_a_token_with_a_changed_character_is_refused_or_is_another_one(
    token: LeaseToken, data: st.DataObject
) -> None:
    text = encode_token(token)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda c: c != text[place]))
    try:
        assert decode_token(text[:place] + other + text[place + 1 :]) != token
    except ValidationError:
        return
