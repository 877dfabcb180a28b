"""Audit records: their shape, and how long they stay."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.dynamodb import NS, Costs, Runner, get, put
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.audit import AuditEvent, ulid
from zae_limiter.core.exceptions import StoredDataWarning
from zae_limiter.core.hierarchy import SYSTEM_SLOT
from zae_limiter.core.models import LimiterConfig
from zae_limiter.testing import ManualClock
from zae_limiter.testing.clock import START_MS

DAY_S = 86_400
ALLOW = LimiterConfig(on_unavailable="allow")
PK = f"{NS}/AUDIT#$SYSTEM"


def told(number: int, **values: Any) -> AuditEvent:
    at = f"2024-01-01T00:00:{number:02}Z"
    return AuditEvent(ulid(START_MS, number), at, "limits_set", "$SYSTEM", **values)


async def record(store: DynamoStore, event: AuditEvent) -> None:
    await store.configs.write(NS, SYSTEM_SLOT, ALLOW, event)


def test_a_record_has_the_documented_shape(store: DynamoStore, driver: Runner) -> None:
    details = {"limits": [{"name": "rpm", "capacity": 5}], "parent_id": None, "": {"": True}}
    event = told(1, principal="admin", resource="gpt-4", details=details)
    driver.run(record(store, event))
    stored = driver.run(get(store, PK, f"#AUDIT#{event.event_id}"))
    ttl = stored.pop("ttl")
    assert stored == {
        "PK": PK,
        "SK": f"#AUDIT#{event.event_id}",
        "GSI4PK": NS,
        "GSI4SK": PK,
        "entity_id": "$SYSTEM",
        "event_id": event.event_id,
        "timestamp": "2024-01-01T00:00:01Z",
        "action": "limits_set",
        "principal": "admin",
        "resource": "gpt-4",
        "details": {"limits": details["limits"], "parent_id": None, "\0": {"\0": True}},
    }
    assert ttl - driver.io.now_ms() // 1000 in range(90 * DAY_S - 60, 90 * DAY_S + 1)
    assert driver.run(store.audit.read(NS, "$SYSTEM", 10, None)) == [event]


def test_events_stay_as_long_as_the_system_record_says(shaky: DynamoStore, patient: Runner) -> None:
    clock: ManualClock = patient.io._clock  # type: ignore[attr-defined]
    values = {"PK": f"{NS}/SYSTEM#", "SK": "#CONFIG", "audit_retention_days": 7}

    def days_of(number: int) -> float:
        event = told(number)
        patient.run(record(shaky, event))
        ttl = patient.run(get(shaky, PK, f"#AUDIT#{event.event_id}"))["ttl"]
        seconds: int = ttl - clock.now_ms() // 1000
        return seconds / DAY_S

    assert days_of(1) == 90
    patient.run(put(shaky, **values))
    assert days_of(2) == 90, "It is asked once a minute"
    clock.advance(60)
    assert days_of(3) == 7
    for number, wrong in enumerate(("many", 0, -1, None), 4):
        patient.run(put(shaky, **{**values, "audit_retention_days": wrong}))
        clock.advance(60)
        assert days_of(number) == 90


def test_one_page_is_one_call(store: DynamoStore, driver: Runner) -> None:
    events = [told(number) for number in range(10)]
    for event in events:
        driver.run(record(store, event))
    costs = Costs(store)
    found = driver.run(store.audit.read(NS, "$SYSTEM", 3, events[6].event_id))
    assert found == [events[5], events[4], events[3]]
    assert costs.calls == {"Query": 1}
    for unknown, count in (("0", 0), ("Z" * 26, 10)):
        assert len(driver.run(store.audit.read(NS, "$SYSTEM", 100, unknown))) == count


def test_events_of_other_clients_are_read(store: DynamoStore, driver: Runner) -> None:
    bare = {"entity_id": "$SYSTEM", "event_id": "01", "timestamp": "t", "action": "bucket_reset"}
    driver.run(put(store, PK=PK, SK="#AUDIT#01", **bare, principal=None, resource=None))
    event = AuditEvent("01", "t", "bucket_reset", "$SYSTEM")
    assert driver.run(store.audit.read(NS, "$SYSTEM", 10, None)) == [event]
    driver.run(put(store, PK=PK, SK="#AUDIT#02", **{**bare, "action": 5}))
    with pytest.warns(StoredDataWarning, match=f"{re.escape(PK)} #AUDIT#02: action is 5"):
        assert driver.run(store.audit.read(NS, "$SYSTEM", 10, None)) == [event]
