"""The customers of the gateway: which entity an API key belongs to."""

import hashlib
import json
import os
from pathlib import Path

from fastapi import HTTPException

from zae_limiter.integrations import Call

_KEYS = Path(os.environ.get("GATEWAY_KEYS", Path(__file__).with_name("keys.json")))
# Hashes: neither this file nor the limiter's store holds a secret.
_ENTITIES: dict[str, str] = json.loads(_KEYS.read_text(encoding="utf-8"))


def customer_of(call: Call) -> str:
    """Return the entity that a call is charged to. Limits of its parents apply as well."""
    key = call.headers.get("authorization", "").removeprefix("Bearer ")
    entity_id = _ENTITIES.get(hashlib.sha256(key.encode()).hexdigest())
    if entity_id is None:
        raise HTTPException(401, "unknown API key", {"WWW-Authenticate": "Bearer"})
    return entity_id
