from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from zae_limiter.core.audit import (
    SYSTEM_AUDIT_ID,
    AuditAction,
    AuditEvent,
    resource_audit_id,
    ulid,
)
from zae_limiter.core.exceptions import InvalidIdentifierError
from zae_limiter.core.validation import validate_identifier

BARE = AuditEvent("01A", "2024-01-01T00:00:00Z", AuditAction.LIMITS_SET, "key")
FULL = AuditEvent(
    "01B",
    "2024-01-01T00:00:00Z",
    AuditAction.ENTITY_CREATED,
    "key",
    "alice",
    "gpt-4",
    {"limits": [{"name": "rpm"}]},
)


def test_an_event_as_a_dict_leaves_out_unknown_fields() -> None:
    assert BARE.to_dict() == {
        "event_id": "01A",
        "timestamp": "2024-01-01T00:00:00Z",
        "action": "limits_set",
        "entity_id": "key",
    }


def test_an_event_as_a_dict_has_all_known_fields() -> None:
    assert FULL.to_dict() == {
        "event_id": "01B",
        "timestamp": "2024-01-01T00:00:00Z",
        "action": "entity_created",
        "entity_id": "key",
        "principal": "alice",
        "resource": "gpt-4",
        "details": {"limits": [{"name": "rpm"}]},
    }


@pytest.mark.parametrize("event", [BARE, FULL])
def test_an_event_survives_its_dictionary(event: AuditEvent) -> None:
    assert AuditEvent.from_dict(event.to_dict()) == event


def test_knowing_more_makes_a_new_event() -> None:
    more = FULL.with_details(records_deleted=3)
    assert more.details == {"limits": [{"name": "rpm"}], "records_deleted": 3}
    assert "records_deleted" not in FULL.details
    assert more.event_id == FULL.event_id


def test_actions() -> None:
    actions = {value for key, value in vars(AuditAction).items() if key.isupper()}
    assert actions == {
        "entity_created",
        "entity_updated",
        "entity_deleted",
        "limits_set",
        "limits_deleted",
        "namespace_registered",
        "namespace_deleted",
        "namespace_recovered",
        "namespace_purged",
    }


def test_ids_of_configuration_can_be_no_entity() -> None:
    assert (SYSTEM_AUDIT_ID, resource_audit_id("gpt-4")) == ("$SYSTEM", "$RESOURCE:gpt-4")
    for audit_id in (SYSTEM_AUDIT_ID, resource_audit_id("gpt-4")):
        with pytest.raises(InvalidIdentifierError):
            validate_identifier(audit_id)


class TestUlid:
    def test_known_values(self) -> None:
        assert ulid(0, 0) == "0" * 26
        assert ulid(1469918176385, 0) == "01ARYZ6S41" + "0" * 16
        assert ulid((1 << 48) - 1, (1 << 80) - 1) == "7" + "Z" * 25

    @quick
    @given(
        st.integers(0, (1 << 48) - 1),
        st.integers(0, (1 << 80) - 1),
        st.integers(0, (1 << 48) - 1),
        st.integers(0, (1 << 80) - 1),
    )
    def test_they_sort_by_time_and_then_by_entropy(
        self, at_ms: int, entropy: int, later_ms: int, other: int
    ) -> None:
        one, two = ulid(at_ms, entropy), ulid(later_ms, other)
        assert len(one) == 26
        assert (one < two) == ((at_ms, entropy) < (later_ms, other))

    def test_only_80_bits_of_entropy_count(self) -> None:
        assert ulid(5, (1 << 80) + 7) == ulid(5, 7)
