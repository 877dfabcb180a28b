"""Keys, indexes and attribute names of the one table.

    record             PK                              SK
    entity             {ns}/ENTITY#{id}                #META
    bucket             {ns}/BUCKET#{id}#{res}#{shard}  #STATE
    entity config      {ns}/ENTITY#{id}                #CONFIG#{res}
    resource config    {ns}/RESOURCE#{res}             #CONFIG
    system config      {ns}/SYSTEM#                    #CONFIG
    receipt            {ns}/RECEIPT#{slot}             KEY#{key} or LEASE#{lease id}
    deleted config     as the config had               #DELETED and what the config had
    resource registry  {ns}/SYSTEM#                    #RESOURCES
    entity registry    {ns}/SYSTEM#                    #ENTITY_CONFIG_RESOURCES
    usage              {ns}/ENTITY#{id}                #USAGE#{res}#{window}
    audit              {ns}/AUDIT#{id}                 #AUDIT#{event id}
    version            _/SYSTEM#                       #VERSION
    namespace by name  _/SYSTEM#                       #NAMESPACE#{name}
    namespace by id    _/SYSTEM#                       #NSID#{id}
    stream checkpoint  _/STREAM#                       #SHARD#{work}#{label}#{stream shard id}

    GSI1  {ns}/PARENT#{id} -> CHILD#{id}                     children of an entity
    GSI2  {ns}/RESOURCE#{res} -> BUCKET#{id}#{shard}, USAGE#{window}#{id}
    GSI3  {ns}/ENTITY_CONFIG#{res} -> {id}                   entities with limits of their own
          {ns}/ENTITY#{id} -> BUCKET#{res}#{shard}           buckets of an entity
    GSI4  {ns} -> what the item is                           everything in a namespace

    usage  one number for each limit, and seq#{shard}: the last sequence that was counted

Every key starts with the namespace id. GSI2, GSI3 and GSI4 project keys only, so that a
change of a balance never writes to an index.
"""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

from ...core.validation import RESERVED_NAMESPACE

REGISTRY_ID = RESERVED_NAMESPACE
BUCKET_PREFIX = "b"
LIMIT_PREFIX = "l"
TTL_ATTRIBUTE = "ttl"
RECEIPT_PREFIX = "RECEIPT#"
_RECEIPT_SLOTS = 16


def pk_entity(namespace_id: str, entity_id: str) -> str:
    """Return the partition of an entity, its configuration and usage."""
    return f"{namespace_id}/ENTITY#{entity_id}"


def pk_bucket(namespace_id: str, entity_id: str, resource: str, shard_id: int) -> str:
    """Return the partition of a bucket item: each has its own."""
    return f"{namespace_id}/BUCKET#{entity_id}#{resource}#{shard_id}"


def pk_resource(namespace_id: str, resource: str) -> str:
    """Return the partition of a resource's defaults."""
    return f"{namespace_id}/RESOURCE#{resource}"


def pk_system(namespace_id: str) -> str:
    """Return the partition of a namespace's defaults and registries."""
    return f"{namespace_id}/SYSTEM#"


def pk_receipt(namespace_id: str, name: str) -> str:
    """Return the partition of a receipt: one of several, so that none is written too often."""
    return pk_receipts(namespace_id)[crc32(name.encode()) % _RECEIPT_SLOTS]


def pk_receipts(namespace_id: str) -> list[str]:
    """Return all partitions with receipts of a namespace."""
    return [f"{namespace_id}/{RECEIPT_PREFIX}{slot}" for slot in range(_RECEIPT_SLOTS)]


def pk_stream() -> str:
    """Return the partition of the checkpoints of the stream's readers."""
    return f"{REGISTRY_ID}/STREAM#"


def pk_audit(namespace_id: str, entity_id: str) -> str:
    """Return the partition of an entity's audit events."""
    return f"{namespace_id}/AUDIT#{entity_id}"


def sk_meta() -> str:
    """Return the sort key of an entity record."""
    return "#META"


def sk_state() -> str:
    """Return the sort key of a bucket item."""
    return "#STATE"


def sk_config(resource: str | None = None) -> str:
    """Return the sort key of a configuration; with a resource, of an entity's."""
    return "#CONFIG" if resource is None else f"#CONFIG#{resource}"


def sk_deleted(sk: str) -> str:
    """Return the sort key of a deleted configuration's remains: its last version."""
    return f"#DELETED{sk}"


def sk_usage(resource: str, window_key: str) -> str:
    """Return the sort key of a usage snapshot."""
    return f"#USAGE#{resource}#{window_key}"


def sk_audit(event_id: str) -> str:
    """Return the sort key of an audit event."""
    return f"#AUDIT#{event_id}"


def sk_version() -> str:
    """Return the sort key of the version record."""
    return "#VERSION"


def sk_resources() -> str:
    """Return the sort key of the registry of resources with defaults."""
    return "#RESOURCES"


def sk_entity_config_resources() -> str:
    """Return the sort key of the registry of entities with limits of their own."""
    return "#ENTITY_CONFIG_RESOURCES"


def sk_provisioner() -> str:
    """Return the sort key of the record in which the existing package lists what it manages."""
    return "#PROVISIONER"


def sk_managed(entity_id: str | None = None, resource: str | None = None) -> str:
    """Return the sort key of the mark of a configuration record that a manifest manages."""
    return f"{sk_provisioner()}#MANAGED#{entity_id or ''}#{resource or ''}"


def sk_namespace(name: str) -> str:
    """Return the sort key of a namespace by name."""
    return f"#NAMESPACE#{name}"


def sk_nsid(namespace_id: str) -> str:
    """Return the sort key of a namespace by id."""
    return f"#NSID#{namespace_id}"


def sk_stream_shard(work: str, shard_name: str) -> str:
    """Return the sort key of a checkpoint: for readers that do the same work, and the name of a
    stream shard, which has the stream's label and the shard's id."""
    return f"#SHARD#{work}#{shard_name}"


def gsi1_pk_parent(namespace_id: str, parent_id: str) -> str:
    """Return the index partition of an entity's children."""
    return f"{namespace_id}/PARENT#{parent_id}"


def gsi1_sk_child(entity_id: str) -> str:
    """Return the index sort key of a child."""
    return f"CHILD#{entity_id}"


def gsi2_pk_resource(namespace_id: str, resource: str) -> str:
    """Return the index partition of a resource's buckets and usage."""
    return f"{namespace_id}/RESOURCE#{resource}"


def gsi2_sk_bucket(entity_id: str, shard_id: int) -> str:
    """Return the index sort key of a resource's bucket item."""
    return f"BUCKET#{entity_id}#{shard_id}"


def gsi2_sk_usage(window_key: str, entity_id: str) -> str:
    """Return the index sort key of a resource's usage snapshot."""
    return f"USAGE#{window_key}#{entity_id}"


def gsi3_pk_entity_config(namespace_id: str, resource: str) -> str:
    """Return the index partition of entities with limits of their own for a resource."""
    return f"{namespace_id}/ENTITY_CONFIG#{resource}"


def gsi3_sk_entity(entity_id: str) -> str:
    """Return the index sort key of an entity with limits of its own."""
    return entity_id


def gsi3_pk_entity(namespace_id: str, entity_id: str) -> str:
    """Return the index partition of an entity's buckets."""
    return f"{namespace_id}/ENTITY#{entity_id}"


def gsi3_sk_bucket(resource: str, shard_id: int) -> str:
    """Return the index sort key of an entity's bucket item."""
    return f"BUCKET#{resource}#{shard_id}"


def gsi4_sk_bucket(entity_id: str, resource: str, shard_id: int) -> str:
    """Return the index sort key of a namespace's bucket item."""
    return f"BUCKET#{entity_id}#{resource}#{shard_id}"


def gsi4_sk_usage(entity_id: str, resource: str, window_key: str) -> str:
    """Return the key of one usage snapshot of a namespace. It is of a kind of its own, so that a
    list of entities does not page through their snapshots."""
    return f"USAGE#{entity_id}#{resource}#{window_key}"


def parse_namespace(pk: str) -> tuple[str, str]:
    """Return the namespace id of a key, and the rest of the key."""
    namespace_id, found, rest = pk.partition("/")
    if not found:
        raise ValueError(f"no namespace in key {pk!r}")
    return namespace_id, rest


def parse_bucket_pk(pk: str) -> tuple[str, str, str, int]:
    """Return namespace id, entity id, resource and shard of a bucket item's key."""
    namespace_id, rest = parse_namespace(pk)
    kind, _, name = rest.partition("#")
    entity_id, _, tail = name.partition("#")
    resource, found, shard = tail.rpartition("#")
    # Without this, two keys would be taken for the same bucket item.
    is_canonical = shard.isdecimal() and str(int(shard)) == shard
    if kind != "BUCKET" or not found or not is_canonical:
        raise ValueError(f"not the key of a bucket: {pk!r}")
    return namespace_id, entity_id, resource, int(shard)


def bucket_attr(limit_name: str, field: str) -> str:
    """Return the attribute that holds one field of one limit of a bucket item."""
    return f"{BUCKET_PREFIX}_{limit_name}_{field}"


def parse_bucket_attr(name: str) -> tuple[str, str] | None:
    """Return limit name and field of such an attribute; None for any other."""
    return _parse_attr(name, BUCKET_PREFIX)


def limit_attr(limit_name: str, field: str) -> str:
    """Return the attribute that holds one field of one stored limit."""
    return f"{LIMIT_PREFIX}_{limit_name}_{field}"


def parse_limit_attr(name: str) -> tuple[str, str] | None:
    """Return limit name and field of such an attribute; None for any other."""
    return _parse_attr(name, LIMIT_PREFIX)


def _parse_attr(name: str, prefix: str) -> tuple[str, str] | None:
    if not name.startswith(f"{prefix}_"):
        return None
    limit_name, found, field = name[len(prefix) + 1 :].rpartition("_")
    return (limit_name, field) if found and limit_name else None


def name_attr(name: str) -> str:
    """Return the attribute that counts for a limit or a resource, in records that count by name.

    A name that the record needs for itself gets a sign that no name can have.
    """
    return f"#{name}" if name in _OWN_ATTRIBUTES else name


def parse_name_attr(attribute: str) -> str | None:
    """Return the name that such an attribute counts for; None when it is the record's own."""
    if attribute.startswith("#"):
        return attribute[1:]
    return None if attribute in _OWN_ATTRIBUTES or "#" in attribute else attribute


_SEQUENCE_PREFIX = "seq#"
# As many digits as the number of a stream record has at most.
_SEQUENCE_DIGITS = 40
_SEQUENCE = re.compile(rf"[^/]+/[0-9]{{{_SEQUENCE_DIGITS}}}")


def sequence_text(stream_label: str, record_id: str) -> str:
    """Return the place of a record among the records of all streams of a table, as text that sorts
    like it: a later stream has the greater label."""
    return f"{stream_label}/{record_id:0>{_SEQUENCE_DIGITS}}"


def is_sequence_text(text: str) -> bool:
    """Return whether a text has the form of a sequence."""
    return bool(_SEQUENCE.fullmatch(text))


def sequence_attr(shard: int) -> str:
    """Return the attribute with the last sequence that a snapshot has counted of a shard. No limit
    can have its name."""
    return f"{_SEQUENCE_PREFIX}{shard}"


def parse_sequence_attr(attribute: str) -> int | None:
    """Return the shard of such an attribute; None for any other."""
    shard = attribute.removeprefix(_SEQUENCE_PREFIX)
    return int(shard) if shard != attribute and shard.isdecimal() else None


_KEY_ATTRIBUTES = ("PK", "SK", *(f"GSI{n}{part}" for n in range(1, 5) for part in ("PK", "SK")))
# Tables of the existing package have local indexes, too.
_OWN_ATTRIBUTES = frozenset(
    (
        *_KEY_ATTRIBUTES,
        *(f"LSI{n}SK" for n in range(1, 6)),
        TTL_ATTRIBUTE,
        "entity_id",
        "resource",
        "window",
        "window_start",
        "total_events",
    )
)


def calculate_ttl(now_ms: int, seconds: int = 86_400) -> int:
    """Return the moment, in seconds since the epoch, from which a record may be dropped."""
    return now_ms // 1000 + seconds


def key(pk: str, sk: str) -> dict[str, Any]:
    """Return a primary key as DynamoDB takes it."""
    return {"PK": {"S": pk}, "SK": {"S": sk}}


def get_table_definition(table_name: str) -> dict[str, Any]:
    """Return the parameters of a `CreateTable`."""
    return {
        "TableName": table_name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"} for name in _KEY_ATTRIBUTES
        ],
        "KeySchema": _key_schema("PK", "SK"),
        "GlobalSecondaryIndexes": [
            _index("GSI1", {"ProjectionType": "INCLUDE", "NonKeyAttributes": _CHILD_ATTRIBUTES}),
            *(_index(f"GSI{n}", {"ProjectionType": "KEYS_ONLY"}) for n in (2, 3, 4)),
        ],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }


_CHILD_ATTRIBUTES = [
    "entity_id",
    "name",
    "parent_id",
    "cascade",
    "metadata",
    "created_at",
    "version",
]


def _key_schema(hash_key: str, range_key: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": hash_key, "KeyType": "HASH"},
        {"AttributeName": range_key, "KeyType": "RANGE"},
    ]


def _index(name: str, projection: dict[str, Any]) -> dict[str, Any]:
    return {
        "IndexName": name,
        "KeySchema": _key_schema(f"{name}PK", f"{name}SK"),
        "Projection": projection,
    }
