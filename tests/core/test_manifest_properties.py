"""A manifest goes through the properties of a CloudFormation resource as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.test_manifest import ALL
from zae_limiter import Limit, LimiterConfig, ManifestError
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.located import locate_plain
from zae_limiter.core.manifest import DeclaredEntity, Manifest
from zae_limiter.core.manifest_properties import manifest_to_properties, properties_to_document
from zae_limiter.core.manifest_reader import read_manifest
from zae_limiter.manifest_file import parse_manifest


def as_told(value: Any) -> Any:
    """Return properties as CloudFormation hands them over: every scalar is a text."""
    if isinstance(value, Mapping):
        return {key: as_told(held) for key, held in value.items()}
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(properties: Mapping[str, Any]) -> Manifest:
    return read_manifest(locate_plain(properties_to_document(properties)), "properties")


_LIMITS = st.lists(
    st.builds(Limit, st.sampled_from(["rpm", "a.b"]), *[st.integers(1, 10**9)] * 3),
    min_size=1,
    unique_by=lambda limit: limit.name,
).map(tuple)
_CONFIGS = st.builds(LimiterConfig, _LIMITS, inherit=st.booleans())
_IDS = st.sampled_from(["a", "12", "Limits", "Name", "true"])
_MANIFESTS = st.builds(
    Manifest,
    st.sampled_from(["default", "12", "no"]),
    st.dictionaries(
        st.builds(ConfigSlot, _IDS, st.sampled_from(["_default_", "gpt-4", "Limits"]))
        | st.builds(ConfigSlot, st.none(), st.sampled_from(["gpt-4", "Resources"])),
        _CONFIGS,
        max_size=4,
    ),
    st.dictionaries(
        _IDS,
        st.tuples(
            st.text(max_size=4),
            st.none() | st.booleans(),
            st.dictionaries(st.text("ab1", min_size=1), st.integers() | st.text("a1"), max_size=2),
        ),
        max_size=3,
    ).map(
        lambda found: {
            key: DeclaredEntity(key, name, cascade=cascade, metadata=metadata)
            for key, (name, cascade, metadata) in found.items()
        }
    ),
)


@settings(deadline=None, max_examples=60)
@given(_MANIFESTS)
def test_a_manifest_is_read_from_its_properties_as_it_was(manifest: Manifest) -> None:
    properties = manifest_to_properties(manifest)
    assert read(properties) == manifest
    assert read(as_told(properties)) == manifest


def test_everything_that_a_manifest_can_say_has_properties() -> None:
    manifest = parse_manifest(ALL)
    assert read(as_told(manifest_to_properties(manifest))) == manifest


def test_properties_are_read_in_the_words_of_the_existing_package() -> None:
    found = read(
        {
            "ServiceToken": "arn",
            "TableName": "app",
            "Namespace": "default",
            "System": {"OnUnavailable": "allow", "Limits": {"rpm": {"Capacity": "60"}}},
            "Resources": {
                "gpt-4": {
                    "Limits": {"tpm": {"Capacity": "9", "RefillAmount": "3", "RefillPeriod": "10"}}
                }
            },
            "Entities": {"a": {"Resources": {"gpt-4": {"Limits": {"rpm": "7", "tpm": "5/sec"}}}}},
        }
    )
    assert found == Manifest(
        "default",
        {
            SYSTEM_SLOT: LimiterConfig((Limit.per_minute("rpm", 60),), "allow"),
            ConfigSlot(None, "gpt-4"): LimiterConfig((Limit("tpm", 9, 3, 10),)),
            ConfigSlot("a", "gpt-4"): LimiterConfig(
                (Limit.per_minute("rpm", 7), Limit.per_second("tpm", 5))
            ),
        },
    )


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"Sytem": {}}, "Sytem: is unknown"),
        ({"System": "x"}, "system: is not a map"),
        (
            {"System": {"Limits": {"rpm": {"capacity": "1", "Capacity": "2"}}}},
            "Capacity: is unknown",
        ),
        ({"System": {"Limits": {"rpm": {"Capacity": "9" * 200}}}}, "must be a whole number"),
        ({"System": {"Limits": {"rpm": {"Capacity": "-1"}}}}, "must be a whole number"),
        ({"Entities": {"a": {"Cascade": "maybe"}}}, "must be true or false"),
        ({"Entities": {"a": {"Metadata": "{"}}}, "must be a mapping"),
        ({"Entities": ["a"]}, "entities: is not a map"),
    ],
)
def test_properties_of_another_form_are_refused(properties: Any, problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        read({"Namespace": "n", **properties})
