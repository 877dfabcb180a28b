"""The published JSON Schema and the reader agree on any document, valid or not."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from zae_limiter import ManifestError
from zae_limiter.core.located import locate_plain
from zae_limiter.core.manifest_reader import read_manifest

SCHEMA = jsonschema.Draft202012Validator(
    json.loads(files("zae_limiter").joinpath("limits-manifest.schema.json").read_text())
)
Strategy = st.SearchStrategy[Any]

ODD: Strategy = st.sampled_from([None, True, False, -1, 0, 1.5, "", "a b", "#", [], {}, [1], "wcu"])


def mostly(valid: Strategy) -> Strategy:
    """Return a strategy of which a part is odd."""
    return st.integers(0, 11).flatmap(lambda n: ODD if n == 0 else valid)


def a_map(fields: dict[str, Strategy]) -> Strategy:
    """Return maps with some of the fields, and now and then one that is unknown."""
    unknown: Strategy = st.just({}) | st.just({}) | st.just({}) | st.just({"unknown": 1})
    known = st.fixed_dictionaries({}, optional={k: mostly(v) for k, v in fields.items()})
    return st.builds(lambda one, other: one | other, known, unknown)


AMOUNT = st.integers(1, 10**15) | st.sampled_from([1, 10**15 + 1])
PERIOD = st.integers(1, 10**9) | st.sampled_from([60, 10**9 + 1])
# What a text says of amounts is beyond a schema: these are either right, or no rates at all.
RATES = ["5/min", "1,000/5min:8,000", "7 per hour", " 10/minute; burst 15 ", "9/day (burst: 10)"]
NO_RATES = ["5/week", "fast", "5", "/min", "5/min;", "5 / min", "1,0/min", "-5/min", "5/min:"]
RATE = st.sampled_from([*RATES, *NO_RATES])
LIMIT = (
    AMOUNT
    | RATE
    | a_map({"capacity": AMOUNT, "refill_amount": AMOUNT, "refill_period": PERIOD, "burst": AMOUNT})
)
LIMIT_NAME = st.sampled_from(["rpm", "tpm", "a.b-c", "x" * 64, "x" * 65, "wcu", "1rpm", "a b", ""])
LIMITS = st.dictionaries(LIMIT_NAME, mostly(LIMIT), max_size=3)
RESOURCE = st.sampled_from(["gpt-4", "a/b:c", "x" * 64, "x" * 65, "4gpt", "_default_", "a#b", "é"])
LEVEL = a_map({"limits": LIMITS, "inherit": st.booleans()})
ENTITY_ID = st.sampled_from(["a", "1", "a:b@c", "x" * 256, "x" * 257, "-a", "a/b", ""])
METADATA = st.dictionaries(st.sampled_from(["a", "b"]), st.none() | st.booleans() | st.text("ab"))
ENTITY = a_map(
    {
        "name": st.text("ab ", max_size=3) | st.sampled_from(["x" * 1024, "x" * 1025]),
        # Cycles are beyond a schema: no entity here is one of these parents.
        "parent": st.sampled_from(["org", "p" * 256, "p" * 257, "-p"]),
        "cascade": st.booleans(),
        "metadata": METADATA,
        "limits": LIMITS,
        "inherit": st.booleans(),
        "resources": st.dictionaries(RESOURCE, mostly(LEVEL), max_size=2),
    }
)
MANIFEST = a_map(
    {
        "namespace": st.sampled_from(["default", "a/b", "_", "x" * 256, "x" * 257, "a#b"]),
        "x-anything": ODD,
        "system": a_map({"on_unavailable": st.sampled_from(["allow", "block"]), "limits": LIMITS}),
        "resources": st.dictionaries(RESOURCE, mostly(LEVEL), max_size=2),
        "entities": st.dictionaries(ENTITY_ID, mostly(ENTITY), max_size=2),
    }
)


def is_read(document: object) -> bool:
    try:
        read_manifest(locate_plain(document))
    except ManifestError:
        return False
    return True


def declares_default_twice(document: Any) -> bool:
    """Whether an entity has limits for all resources in two places, which a schema cannot say."""
    entities = document.get("entities")
    return isinstance(entities, dict) and any(
        isinstance(entity, dict)
        and {"limits", "inherit"} & entity.keys()
        and isinstance(entity.get("resources"), dict)
        and "_default_" in entity["resources"]
        for entity in entities.values()
    )


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(MANIFEST.map(lambda document: {"namespace": "default", **document}))
@example({"namespace": "n", "entities": {"a": {"limits": {"rpm": "rpm: 5"}}}})
@example({"namespace": "n", "system": {"limits": {f"l{n}": 1 for n in range(32)}}})
@example({"namespace": "n", "system": {"limits": {f"l{n}": 1 for n in range(33)}}})
@example({"namespace": "n", "entities": {"a": {"metadata": {f"k{n}": 1 for n in range(65)}}}})
def test_the_schema_and_the_reader_agree_on_any_document(document: dict[str, Any]) -> None:
    if not declares_default_twice(document):
        assert SCHEMA.is_valid(document) == is_read(document)
