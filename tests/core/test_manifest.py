"""Manifests are read with all of their problems, and agree with the published schema."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, LimiterConfig, ManifestError
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.located import locate_plain
from zae_limiter.core.manifest import DeclaredEntity, Manifest, manifest_to_dict
from zae_limiter.core.manifest_reader import read_manifest
from zae_limiter.core.validation import MAX_AMOUNT, MAX_PERIOD_SECONDS
from zae_limiter.manifest_file import dump_manifest, parse_manifest

SCHEMA = json.loads(files("zae_limiter").joinpath("limits-manifest.schema.json").read_text())
ALL = """
x-gold: &gold {rpm: 1_000, tpm: "50,000/5min:80,000"}
namespace: default
system:
  on_unavailable: allow
  limits: {rpm: 60}
resources:
  gpt-4:
    limits:
      rpm: 500/minute; burst 700
      tpm: {capacity: 40000, refill_amount: 10, refill_period: 30}
      tph: {capacity: 5, burst: 7}
entities:
  acme: {name: Acme Inc.}
  12345: {limits: *gold}
  key-1:
    parent: acme
    cascade: yes
    metadata: {tier: gold, sizes: [1, 2.5, null]}
    limits: {<<: *gold, rpm: 5}
    resources:
      gpt-4: {limits: {rpm: "rpm: 50 per min"}}
"""
GOLD_TPM = Limit("tpm", 80_000, 50_000, 300)


def test_a_manifest_is_read_with_shorthand_defaults_and_anchors() -> None:
    assert parse_manifest(ALL) == Manifest(
        "default",
        {
            SYSTEM_SLOT: LimiterConfig((Limit.per_minute("rpm", 60),), "allow"),
            ConfigSlot(None, "gpt-4"): LimiterConfig(
                (
                    Limit.per_minute("rpm", 500, burst=700),
                    Limit("tpm", 40_000, 10, 30),
                    Limit("tph", 7, 7, 60),
                )
            ),
            ConfigSlot("12345", "_default_"): LimiterConfig(
                (Limit.per_minute("rpm", 1000), GOLD_TPM)
            ),
            ConfigSlot("key-1", "_default_"): LimiterConfig((Limit.per_minute("rpm", 5), GOLD_TPM)),
            ConfigSlot("key-1", "gpt-4"): LimiterConfig((Limit.per_minute("rpm", 50),)),
        },
        {
            "acme": DeclaredEntity("acme", "Acme Inc."),
            "key-1": DeclaredEntity(
                "key-1", None, "acme", True, {"tier": "gold", "sizes": [1, 2.5, None]}
            ),
        },
    )


def test_every_problem_is_listed_with_its_line_and_column() -> None:
    text = """\
namespce: default
system: {limits: {rpm: -1, wcu: 5, tpm: fast}, on_unavailable: maybe}
resources:
  gpt 4: {limits: {rpm: 1}}
  gpt-4: {limit: {rpm: 1}}
  a: {limits: {}}
  b:
  c: {limits: {rpm: {refill_amount: 3}, tpm: {capacity: 1.5}, tph: [1]}}
entities:
  a: {parent: b, cascade: 1}
  b: {parent: a}
  d: {limits: {rpm: 1}, resources: {_default_: {limits: {rpm: 1}}}}
  d: {limits: {rpm: 1}}
  e: {metadata: [1], disabled: true}
  f: {}
"""
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, "limits.yaml")
    assert [(p.line, p.column, p.path) for p in sorted(caught.value.problems, key=_place)] == [
        (1, 1, "namespace"),
        (1, 1, "namespce"),
        (2, 24, "system.limits.rpm"),
        (2, 33, "system.limits.wcu"),
        (2, 41, "system.limits.tpm"),
        (2, 64, "system.on_unavailable"),
        (4, 3, "resources.gpt 4"),
        (5, 11, "resources.gpt-4.limit"),
        (6, 15, "resources.a.limits"),
        (7, 5, "resources.b"),
        (8, 21, "resources.c.limits.rpm"),
        (8, 57, "resources.c.limits.tpm.capacity"),
        (8, 68, "resources.c.limits.tph"),
        (10, 15, "entities.a.parent"),
        (10, 27, "entities.a.cascade"),
        (11, 15, "entities.b.parent"),
        (12, 48, "entities.d.resources._default_"),
        (13, 3, "entities.d"),
        (14, 17, "entities.e.metadata"),
        (14, 22, "entities.e.disabled"),
        (15, 6, "entities.f"),
    ]
    assert "limits.yaml:1:1: namespce: is unknown: did you mean namespace?" in caught.value.lines


def _place(problem: object) -> tuple[int, int, str]:
    line, column, path = (getattr(problem, name) for name in ("line", "column", "path"))
    return line, column, path


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "f:2:1: did not find expected node content"),
        ("", "f: is empty"),
        ("- 1", "f:1:1: is not a map"),
        ("namespace: 0x10", "f:1:12: 0x10 is not a plain decimal number: quote it"),
        ("namespace: 1:30", "f:1:12: 1:30 is not a plain decimal number: quote it"),
        ("namespace: &a [*a]", "f:1:12: holds too many parts, or nests too deep"),
        ("a: &a {<<: *a}", "f:1:4: holds too many parts, or nests too deep"),
        ("{? [1] : 2}", "f:1:4: a key must be a plain text"),
        ("a: !!python/name:os.system x", "f:1:4: the tag tag:yaml.org,2002:python/name:os.system"),
        ("\0", "f: unacceptable character #x0000"),
        ("namespace: a#b", "f:1:12: namespace: cannot contain '#' (reserved delimiter)"),
        (f"namespace: {'9' * 5000}", f"f:1:12: {'9' * 50} is not a plain decimal number"),
    ],
)
def test_text_that_is_no_manifest_is_refused_with_its_place(text: str, line: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, "f")
    assert caught.value.lines[0].startswith(line)


def test_an_alias_that_multiplies_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zae_limiter.manifest_file._MAX_PARTS", 50_000)
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ManifestError, match="too many parts"):
        parse_manifest("\n".join(rows))


def test_chains_of_declared_parents_are_at_most_eight_levels() -> None:
    def chain(levels: int) -> dict[str, object]:
        entities = {f"e{n}": {"parent": f"e{n + 1}"} for n in range(1, levels)}
        return {"namespace": "n", "entities": entities}

    assert len(read_manifest(locate_plain(chain(8))).entities) == 7
    with pytest.raises(ManifestError, match=r"entities\.e1\.parent: nests deeper than 8 levels"):
        read_manifest(locate_plain(chain(9)))


_AMOUNTS = st.integers(1, MAX_AMOUNT)
_LIMITS = st.lists(
    st.builds(
        Limit,
        st.sampled_from(["rpm", "tpm", "a.b-c"]),
        _AMOUNTS,
        _AMOUNTS,
        st.integers(1, MAX_PERIOD_SECONDS) | st.sampled_from([60, 3600, 86_400]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda limit: limit.name,
).map(tuple)
_NAMES = st.sampled_from(["12", "1e3", "no", "yes", "null", "0x1F", "k:1", "a@b", "2024-01-01"])
_MANIFESTS = st.builds(
    Manifest,
    _NAMES,
    st.dictionaries(
        st.builds(ConfigSlot, _NAMES, st.sampled_from(["_default_", "gpt-4", "a/b:c"]))
        | st.builds(ConfigSlot, st.none(), st.sampled_from(["gpt-4", "no"])),
        st.builds(LimiterConfig, _LIMITS),
        max_size=5,
    ),
    st.dictionaries(_NAMES, st.text("ab \n:#'\"é\t", max_size=8), max_size=4).map(
        lambda names: {key: DeclaredEntity(key, name) for key, name in names.items()}
    ),
)


@settings(deadline=None, max_examples=40)
@given(_MANIFESTS)
def test_a_manifest_that_is_written_as_yaml_is_read_as_it_was(manifest: Manifest) -> None:
    text = dump_manifest(manifest)
    assert parse_manifest(text) == manifest
    assert parse_manifest(text).digest == manifest.digest
    jsonschema.validate(manifest_to_dict(manifest), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        ALL,
        "namespace: n",
        "{}",
        "{namespace: n, other: 1}",
        "{namespace: n, x-other: 1}",
        "{namespace: n, system: {}}",
        "{namespace: n, system: {limits: {rpm: 0}}}",
        "{namespace: n, system: {limits: {rpm: true}}}",
        "{namespace: n, system: {limits: {rpm: 1000000000000001}}}",
        "{namespace: n, system: {limits: {wcu: 1}}}",
        "{namespace: n, system: {limits: {}}}",
        "{namespace: n, system: {on_unavailable: allow}}",
        "{namespace: n, system: {on_unavailable: never}}",
        "{namespace: n, resources: {_default_: {limits: {rpm: 1}}}}",
        "{namespace: n, resources: {a: {on_unavailable: allow, limits: {rpm: 1}}}}",
        "{namespace: n, entities: {a: {resources: {_default_: {limits: {rpm: 1}}}}}}",
        "{namespace: n, entities: {a: {resources: {a: {}}}}}",
        "{namespace: n, entities: {a: {limits: {rpm: {capacity: 1, soft: true}}}}}",
        "{namespace: n, entities: {a: {limits: {rpm: {refill_amount: 1}}}}}",
        "{namespace: n, entities: {a: {cascade: 'true'}}}",
        "{namespace: n, entities: {a: {parent: '#'}}}",
        "{namespace: n, entities: {a#b: {parent: c}}}",
        "{namespace: n, entities: {a: {}}}",
        "{namespace: n, entities: {a: {metadata: {b: {c: 1}}}}}",
    ],
)
def test_the_schema_and_the_reader_agree(text: str) -> None:
    try:
        parse_manifest(text)
        is_read = True
    except ManifestError:
        is_read = False
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(_json(text)) == is_read


def _json(text: str) -> object:
    """The document as JSON has it: keys are texts."""
    return json.loads(json.dumps(yaml.safe_load(text)))
