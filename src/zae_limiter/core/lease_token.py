"""Tokens are leases as text, for another process that ends them.

A token names a receipt and one of its holders. It holds no amounts, so that a forged token cannot
give tokens back that were never charged.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from .exceptions import ValidationError
from .receipts import ReceiptKey
from .validation import is_idempotency_key

_PREFIX = "zael1."
# Namespace, holder, and a name of at most 1024 bytes, as base64 writes them.
_MAX_CHARS = 2048
_KINDS = ("KEY", "LEASE")


class LeaseToken(NamedTuple):
    """A lease token names a receipt, and the holder that may end its lease."""

    key: ReceiptKey
    holder: str


def encode_token(token: LeaseToken) -> str:
    """Return the token as text that fits into a URL."""
    content = "\n".join((token.key.namespace_id, token.holder, token.key.name))
    encoded = base64.urlsafe_b64encode(content.encode()).decode()
    return _PREFIX + encoded.rstrip("=")


def decode_token(text: object) -> LeaseToken:
    """Return the token that was encoded, or raise `ValidationError`."""
    if not isinstance(text, str):
        raise ValidationError("token", text, f"must be a string, not {type(text).__name__}")
    try:
        return _decoded(text)
    except (ValueError, binascii.Error):
        # The value is left out: whoever reads it in a log could end the lease.
        raise ValidationError("token", "", "is none that lease.token() returned") from None


def _decoded(text: str) -> LeaseToken:
    if len(text) > _MAX_CHARS or not text.startswith(_PREFIX):
        raise ValueError
    encoded = text.removeprefix(_PREFIX).encode("ascii")
    padded = encoded + b"=" * (-len(encoded) % 4)
    content = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    namespace_id, holder, name = content.split("\n")
    token = LeaseToken(ReceiptKey(namespace_id, name), holder)
    kind, _, key = name.partition("#")
    is_receipt = kind in _KINDS and is_idempotency_key(key)
    # Text that is decoded leniently would let one lease have several tokens.
    if not (namespace_id and holder and is_receipt) or encode_token(token) != text:
        raise ValueError
    return token
