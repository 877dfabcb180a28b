"""A plan is made of a manifest and stored records, without a store."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Entity, Limit, LimiterConfig
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.manifest import DeclaredEntity, Manifest
from zae_limiter.core.manifest_entities import entity_mark, entity_mark_slot
from zae_limiter.core.manifest_plan import StoredState, is_as_marked, make_plan, mark_of

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100)
SLOT = ConfigSlot("key-1", "gpt-4")
ONE, OTHER = LimiterConfig((RPM,)), LimiterConfig((TPM,))


@pytest.mark.parametrize(
    ("declared", "stored", "marked", "expected"),
    [
        (ONE, None, None, ("create", "")),
        (ONE, None, ONE, ("create", "deleted by somebody else")),
        (ONE, ONE, None, "adopt"),
        (ONE, ONE, ONE, None),
        (ONE, ONE, OTHER, "adopt"),
        (ONE, OTHER, OTHER, ("update", "")),
        (ONE, OTHER, None, ("update", "set by somebody else")),
        (ONE, OTHER, ONE, ("update", "changed by somebody else")),
        (replace(ONE, inherit=True), ONE, ONE, ("update", "")),
        (ONE, replace(ONE, inherit=True), ONE, ("update", "changed by somebody else")),
        (None, ONE, ONE, ("delete", "")),
        (None, OTHER, ONE, ("delete", "changed by somebody else")),
        (None, ONE, None, None),
        (None, None, ONE, "forget"),
    ],
)
def test_each_record_gets_the_change_that_its_mark_tells(
    declared: LimiterConfig | None,
    stored: LimiterConfig | None,
    marked: LimiterConfig | None,
    expected: object,
) -> None:
    manifest = Manifest("n", {SLOT: declared} if declared else {})
    marks = {SLOT: mark_of(marked)} if marked else {}
    plan = make_plan(manifest, StoredState({SLOT: stored} if stored else {}, marks))
    if isinstance(expected, tuple):
        assert [(change.action, change.drift) for change in plan.configs] == [expected]
        assert not plan.marks
    else:
        assert not plan.changes
        wanted = {"adopt": declared and mark_of(declared), "forget": None}
        assert plan.marks == ({SLOT: wanted[str(expected)]} if expected else {})


def test_the_system_record_keeps_the_fields_that_are_not_declared() -> None:
    stored = LimiterConfig((RPM,), "allow", auto_update=False)
    for declared in (LimiterConfig((RPM,)), LimiterConfig(on_unavailable="allow")):
        plan = make_plan(Manifest("n", {SYSTEM_SLOT: declared}), StoredState({SYSTEM_SLOT: stored}))
        assert not plan.changes
    only_mode = Manifest("n", {SYSTEM_SLOT: LimiterConfig(on_unavailable="allow")})
    marks = {SYSTEM_SLOT: mark_of(LimiterConfig((RPM,), "allow"))}
    plan = make_plan(only_mode, StoredState({SYSTEM_SLOT: stored}, marks))
    assert [change.declared for change in plan.configs] == [LimiterConfig((), "allow")]
    assert [change.drift for change in plan.configs] == [""]


def test_parents_come_before_their_children_and_limits_after_entities() -> None:
    entities = {
        "a": DeclaredEntity("a", parent_id="b"),
        "b": DeclaredEntity("b", parent_id="c"),
        "c": DeclaredEntity("c", "C"),
    }
    plan = make_plan(Manifest("n", {SLOT: ONE}, entities), StoredState())
    assert [change.declared.id for change in plan.entities] == ["c", "b", "a"]
    assert plan.changes[-1] == plan.configs[0]


def test_entities_change_by_name_and_metadata_but_never_by_parent() -> None:
    stored = {"a": Entity("a", "A", "org", True, {"tier": 1})}

    def plan(**fields: object) -> object:
        declared = DeclaredEntity("a", **fields)  # type: ignore[arg-type]
        found = make_plan(Manifest("n", {}, {"a": declared}), StoredState(entities=stored))
        return found.conflicts or [change.action for change in found.entities]

    assert plan(name="A", parent_id="org", cascade=True, metadata={"tier": 1}) == []
    assert plan(cascade=True) == []
    assert plan(name="B") == ["update"]
    assert plan(metadata={}) == ["update"]
    assert "entities.a.parent" in str(plan(parent_id="other"))
    assert "entities.a.cascade" in str(plan(cascade=False))


A = DeclaredEntity("a", "A", metadata={"tier": 1})
B = DeclaredEntity("a", "B", metadata={"tier": 1})


def stored_as(declared: DeclaredEntity) -> Entity:
    return Entity("a", declared.name, metadata=dict(declared.metadata or {}))


@pytest.mark.parametrize(
    ("declared", "stored", "marked", "expected"),
    [
        (A, None, None, ("create", "")),
        (A, None, A, ("create", "deleted by somebody else")),
        (A, stored_as(A), None, "adopt"),
        (A, stored_as(A), A, None),
        (A, stored_as(A), B, "adopt"),
        (A, stored_as(B), B, ("update", "")),
        (A, stored_as(B), A, ("update", "changed by somebody else")),
        (A, stored_as(B), None, ("update", "set by somebody else")),
        # A new entity has its id for a name, and no metadata: nobody has set these.
        (A, Entity("a", "a"), None, ("update", "")),
        (A, Entity("a", "a"), A, ("update", "changed by somebody else")),
        (A, Entity("a", "A"), DeclaredEntity("a", "A"), ("update", "")),
        (A, Entity("a", "A", metadata={"tier": 1.0}), A, None),
        (B, Entity("a", "A", metadata={"tier": 1.0}), A, ("update", "")),
        (DeclaredEntity("a", parent_id="p"), Entity("a", "X", "p"), None, None),
        (DeclaredEntity("a", parent_id="p"), Entity("a", "X", "p"), A, "forget"),
        (None, stored_as(A), A, "forget"),
        (None, stored_as(A), None, None),
    ],
)
def test_each_entity_gets_the_change_that_its_mark_tells(
    declared: DeclaredEntity | None,
    stored: Entity | None,
    marked: DeclaredEntity | None,
    expected: object,
) -> None:
    slot = entity_mark_slot("a")
    marks = {slot: str(entity_mark(marked))} if marked else {}
    state = StoredState({}, marks, {"a": stored} if stored else {})
    plan = make_plan(Manifest("n", {}, {"a": declared} if declared else {}), state)
    if isinstance(expected, tuple):
        assert [(change.action, change.drift) for change in plan.entities] == [expected]
        assert bool(plan.drifted) == bool(expected[1])
        assert not plan.marks
    else:
        assert not plan.changes
        wanted = {"adopt": declared and entity_mark(declared), "forget": None}
        assert plan.marks == ({slot: wanted[str(expected)]} if expected else {})


def test_stored_ancestors_that_lead_back_or_are_too_many_are_a_conflict() -> None:
    declared = {"a": DeclaredEntity("a", parent_id="b"), "z": DeclaredEntity("z", parent_id="c1")}
    stored = {
        "b": Entity("b", parent_id="a"),
        **{f"c{n}": Entity(f"c{n}", parent_id=f"c{n + 1}") for n in range(1, 8)},
    }
    plan = make_plan(Manifest("n", {}, declared), StoredState(entities=stored))
    assert plan.conflicts == (
        "entities.a.parent: would form a cycle: a > b > a",
        "entities.z.parent: would nest deeper than 8 levels",
    )
    del stored["c7"], stored["b"]
    assert not make_plan(Manifest("n", {}, declared), StoredState(entities=stored)).conflicts


_CONFIGS = st.builds(
    LimiterConfig,
    st.lists(
        st.builds(Limit.per_minute, st.sampled_from(["rpm", "tpm", "x"]), st.integers(1, 3)),
        min_size=1,
        unique_by=lambda limit: limit.name,
    ),
    inherit=st.booleans(),
)


@settings(deadline=None, max_examples=40)
@given(_CONFIGS, _CONFIGS, st.randoms())
def test_a_record_is_as_marked_if_it_says_what_was_declared(
    declared: LimiterConfig, stored: LimiterConfig, random: object
) -> None:
    mark = mark_of(declared)
    limits = list(declared.limits or ())
    random.shuffle(limits)  # type: ignore[attr-defined]
    assert is_as_marked(replace(declared, limits=tuple(limits)), mark)
    alike = set(declared.limits or ()) == set(stored.limits or ())
    assert is_as_marked(stored, mark) == (alike and stored.inherit == declared.inherit)
    assert not is_as_marked(None, mark)
