"""Tables as older versions left them: every shape of record that a migration has to know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

Shape = Literal["nested", "hybrid", "flat", "composite", "prefixed"]
SHAPES: tuple[Shape, ...] = ("nested", "hybrid", "flat", "composite", "prefixed")
DAY_MS = 86_400_000
Record = dict[str, Any]


def old_bucket(
    shape: Shape,
    entity_id: str,
    resource: str,
    limits: dict[str, tuple[int, int]],
    now_ms: int,
    namespace_id: str = "",
) -> Iterator[Record]:
    """The items of a bucket with daily limits: the tokens that are left, and the capacity."""
    pk = f"ENTITY#{entity_id}"
    if shape in ("composite", "prefixed"):
        prefix = f"{namespace_id}/" if shape == "prefixed" else ""
        cells: Record = {}
        for name, (left, capacity) in limits.items():
            numbers = (left * 1000, capacity * 1000, capacity * 1000, DAY_MS, 7000)
            fields = ("tk", "cp", "ra", "rp", "tc")
            cells |= {f"b_{name}_{f}": n for f, n in zip(fields, numbers, strict=True)}
        yield {
            "PK": f"{prefix}{pk}",
            "SK": f"#BUCKET#{resource}",
            "entity_id": entity_id,
            "resource": resource,
            "rf": now_ms,
            "GSI2PK": f"{prefix}RESOURCE#{resource}",
            "GSI2SK": f"BUCKET#{entity_id}",
            **cells,
        }
        return
    for name, (left, capacity) in limits.items():
        key = {"PK": pk, "SK": f"#BUCKET#{resource}#{name}"}
        index = {"GSI2PK": f"RESOURCE#{resource}", "GSI2SK": f"BUCKET#{entity_id}#{name}"}
        state = {
            "entity_id": entity_id,
            "resource": resource,
            "limit_name": name,
            "tokens_milli": left * 1000,
            "last_refill_ms": now_ms,
            "capacity_milli": capacity * 1000,
            "burst_milli": capacity * 1000,
            "refill_amount_milli": capacity * 1000,
            "refill_period_ms": DAY_MS,
        }
        counter = {} if shape == "nested" else {"total_consumed_milli": 7000}
        yield {**key, **index, **counter, **(state if shape == "flat" else {"data": state})}


def old_limit(pk: str, sk: str, capacity: int, *, burst: int | None = None) -> Record:
    """One limit, flat, as its own item."""
    return {
        "PK": pk,
        "SK": sk,
        "limit_name": sk.rpartition("#")[2],
        "capacity": capacity,
        "burst": capacity if burst is None else burst,
        "refill_amount": capacity,
        "refill_period_seconds": 86_400,
        "config_version": 3,
    }


def nested(record: Record) -> Record:
    """The record with its fields in one map."""
    data = {name: value for name, value in record.items() if name not in ("PK", "SK")}
    return {"PK": record["PK"], "SK": record["SK"], "data": data}


def old_records(now_ms: int) -> Iterator[Record]:
    """Entities, limits, settings, usage and audit events of a small table."""
    yield from _entities()
    yield from _limits_and_settings()
    yield _usage(now_ms)
    yield _event()


def _entities() -> Iterator[Record]:
    yield nested(
        {
            "PK": "ENTITY#acme",
            "SK": "#META",
            "entity_id": "acme",
            "name": "Acme",
            "parent_id": None,
            "metadata": {"tier": "gold"},
            "created_at": "2026-01-01T00:00:00Z",
        }
    )
    yield {
        "PK": "ENTITY#key-1",
        "SK": "#META",
        "entity_id": "key-1",
        "name": "key-1",
        "parent_id": "acme",
        "cascade": True,
        "metadata": {},
        "created_at": "2026-01-02T00:00:00Z",
        "GSI1PK": "PARENT#acme",
        "GSI1SK": "CHILD#key-1",
    }


def _limits_and_settings() -> Iterator[Record]:
    yield old_limit("SYSTEM#", "#LIMIT#rpm", 1000)
    yield old_limit("SYSTEM#", "#LIMIT#whisper#rpm", 40)
    yield old_limit("SYSTEM#", "#LIMIT#gpt-4#rpm", 1)
    yield {"PK": "SYSTEM#", "SK": "#CONFIG", "on_unavailable": "allow", "strict_version": False}
    yield {"PK": "SYSTEM#", "SK": "#RESOURCES", "resources": {"gpt-4"}}
    yield nested({"PK": "SYSTEM#", "SK": "#VERSION", "schema_version": "0.5.0"})
    yield old_limit("RESOURCE#gpt-4", "#LIMIT#gpt-4#rpm", 100)
    yield nested(old_limit("RESOURCE#gpt-4", "#LIMIT#tpm", 5000, burst=9000))
    yield {
        "PK": "RESOURCE#llama/70b",
        "SK": "#CONFIG",
        "resource": "llama/70b",
        "l_rpm_cp": 60,
        "l_rpm_ra": 60,
        "l_rpm_rp": 86_400,
        "config_version": 2,
    }
    yield nested(old_limit("ENTITY#key-1", "#LIMIT#gpt-4#rpm", 10, burst=20))
    yield old_limit("ENTITY#key-1", "#LIMIT#_default_#rpm", 7)


def _usage(now_ms: int) -> Record:
    return {
        "PK": "ENTITY#key-1",
        "SK": "#USAGE#gpt-4#2026-01-03T00:00:00Z",
        "entity_id": "key-1",
        "resource": "gpt-4",
        "window": "daily",
        "window_start": "2026-01-03T00:00:00Z",
        "tpm": 500,
        "total_events": 10,
        "GSI2PK": "RESOURCE#gpt-4",
        "GSI2SK": "USAGE#2026-01-03T00:00:00Z#key-1",
        "ttl": now_ms // 1000 + 86_400,
    }


def _event() -> Record:
    return nested(
        {
            "PK": "AUDIT#key-1",
            "SK": "#AUDIT#01AAAAAAAAAAAAAAAAAAAAAAAA",
            "event_id": "01AAAAAAAAAAAAAAAAAAAAAAAA",
            "timestamp": "2026-01-02T00:00:00Z",
            "action": "entity_created",
            "entity_id": "key-1",
            "principal": "admin",
            "resource": None,
            "details": {"n": 1},
        }
    )
