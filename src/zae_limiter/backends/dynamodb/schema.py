"""Keys, indexes and attribute names of the one table.

    record             PK                              SK
    entity             {ns}/ENTITY#{id}                #META
    bucket             {ns}/BUCKET#{id}#{res}#{shard}  #STATE
    entity config      {ns}/ENTITY#{id}                #CONFIG#{res}
    resource config    {ns}/RESOURCE#{res}             #CONFIG
    system config      {ns}/SYSTEM#                    #CONFIG
    deleted config     as the config had               #DELETED and what the config had
    resource registry  {ns}/SYSTEM#                    #RESOURCES
    entity registry    {ns}/SYSTEM#                    #ENTITY_CONFIG_RESOURCES
    usage              {ns}/ENTITY#{id}                #USAGE#{res}#{window}
    audit              {ns}/AUDIT#{id}                 #AUDIT#{event id}
    version            _/SYSTEM#                       #VERSION
    namespace by name  _/SYSTEM#                       #NAMESPACE#{name}
    namespace by id    _/SYSTEM#                       #NSID#{id}

    GSI1  {ns}/PARENT#{id} -> CHILD#{id}                     children of an entity
    GSI2  {ns}/RESOURCE#{res} -> BUCKET#{id}#{shard}, USAGE#{window}#{id}
    GSI3  {ns}/ENTITY_CONFIG#{res} -> {id}                   entities with limits of their own
          {ns}/ENTITY#{id} -> BUCKET#{res}#{shard}           buckets of an entity
    GSI4  {ns} -> what the item is                           everything in a namespace

Every key starts with the namespace id. GSI2, GSI3 and GSI4 project keys only, so that a
change of a balance never writes to an index.
"""

from __future__ import annotations

from typing import Any

from ...core.validation import RESERVED_NAMESPACE

REGISTRY_ID = RESERVED_NAMESPACE
BUCKET_PREFIX = "b"
LIMIT_PREFIX = "l"
TTL_ATTRIBUTE = "ttl"


def pk_entity(namespace_id: str, entity_id: str) -> str:
    """Entity, its configuration and usage."""
    return f"{namespace_id}/ENTITY#{entity_id}"


def pk_bucket(namespace_id: str, entity_id: str, resource: str, shard_id: int) -> str:
    """A bucket item: each has a partition of its own."""
    return f"{namespace_id}/BUCKET#{entity_id}#{resource}#{shard_id}"


def pk_resource(namespace_id: str, resource: str) -> str:
    """Defaults of a resource."""
    return f"{namespace_id}/RESOURCE#{resource}"


def pk_system(namespace_id: str) -> str:
    """Defaults and registries of a namespace."""
    return f"{namespace_id}/SYSTEM#"


def pk_audit(namespace_id: str, entity_id: str) -> str:
    """Audit events of an entity."""
    return f"{namespace_id}/AUDIT#{entity_id}"


def sk_meta() -> str:
    """Entity record."""
    return "#META"


def sk_state() -> str:
    """Bucket record."""
    return "#STATE"


def sk_config(resource: str | None = None) -> str:
    """Configuration; with a resource, an entity's."""
    return "#CONFIG" if resource is None else f"#CONFIG#{resource}"


def sk_deleted(sk: str) -> str:
    """What is left of a deleted configuration: the number of its last version."""
    return f"#DELETED{sk}"


def sk_usage(resource: str, window_key: str) -> str:
    """Usage snapshot."""
    return f"#USAGE#{resource}#{window_key}"


def sk_audit(event_id: str) -> str:
    """Audit event."""
    return f"#AUDIT#{event_id}"


def sk_version() -> str:
    """Version record."""
    return "#VERSION"


def sk_resources() -> str:
    """Resources that have defaults."""
    return "#RESOURCES"


def sk_entity_config_resources() -> str:
    """How many entities have limits of their own, by resource."""
    return "#ENTITY_CONFIG_RESOURCES"


def sk_namespace(name: str) -> str:
    """Namespace by name."""
    return f"#NAMESPACE#{name}"


def sk_nsid(namespace_id: str) -> str:
    """Namespace by id."""
    return f"#NSID#{namespace_id}"


def gsi1_pk_parent(namespace_id: str, parent_id: str) -> str:
    """Children of an entity."""
    return f"{namespace_id}/PARENT#{parent_id}"


def gsi1_sk_child(entity_id: str) -> str:
    """One child."""
    return f"CHILD#{entity_id}"


def gsi2_pk_resource(namespace_id: str, resource: str) -> str:
    """Buckets and usage of a resource."""
    return f"{namespace_id}/RESOURCE#{resource}"


def gsi2_sk_bucket(entity_id: str, shard_id: int) -> str:
    """One bucket item of a resource."""
    return f"BUCKET#{entity_id}#{shard_id}"


def gsi2_sk_usage(window_key: str, entity_id: str) -> str:
    """One usage snapshot of a resource."""
    return f"USAGE#{window_key}#{entity_id}"


def gsi3_pk_entity_config(namespace_id: str, resource: str) -> str:
    """Entities with limits of their own for a resource."""
    return f"{namespace_id}/ENTITY_CONFIG#{resource}"


def gsi3_sk_entity(entity_id: str) -> str:
    """One of them."""
    return entity_id


def gsi3_pk_entity(namespace_id: str, entity_id: str) -> str:
    """Buckets of an entity."""
    return f"{namespace_id}/ENTITY#{entity_id}"


def gsi3_sk_bucket(resource: str, shard_id: int) -> str:
    """One bucket item of an entity."""
    return f"BUCKET#{resource}#{shard_id}"


def gsi4_sk_bucket(entity_id: str, resource: str, shard_id: int) -> str:
    """One bucket item of a namespace."""
    return f"BUCKET#{entity_id}#{resource}#{shard_id}"


def parse_namespace(pk: str) -> tuple[str, str]:
    """The namespace id of a key, and the rest of it."""
    namespace_id, found, rest = pk.partition("/")
    if not found:
        raise ValueError(f"no namespace in key {pk!r}")
    return namespace_id, rest


def parse_bucket_pk(pk: str) -> tuple[str, str, str, int]:
    """Namespace id, entity id, resource and shard of a bucket's key."""
    namespace_id, rest = parse_namespace(pk)
    kind, _, name = rest.partition("#")
    entity_id, _, tail = name.partition("#")
    resource, found, shard = tail.rpartition("#")
    if kind != "BUCKET" or not found or not shard.isdigit():
        raise ValueError(f"not the key of a bucket: {pk!r}")
    return namespace_id, entity_id, resource, int(shard)


def bucket_attr(limit_name: str, field: str) -> str:
    """The attribute that holds one field of one limit of a bucket."""
    return f"{BUCKET_PREFIX}_{limit_name}_{field}"


def parse_bucket_attr(name: str) -> tuple[str, str] | None:
    """Limit name and field of such an attribute; None for any other."""
    return _parse_attr(name, BUCKET_PREFIX)


def limit_attr(limit_name: str, field: str) -> str:
    """The attribute that holds one field of one stored limit."""
    return f"{LIMIT_PREFIX}_{limit_name}_{field}"


def parse_limit_attr(name: str) -> tuple[str, str] | None:
    """Limit name and field of such an attribute; None for any other."""
    return _parse_attr(name, LIMIT_PREFIX)


def _parse_attr(name: str, prefix: str) -> tuple[str, str] | None:
    if not name.startswith(f"{prefix}_"):
        return None
    limit_name, found, field = name[len(prefix) + 1 :].rpartition("_")
    return (limit_name, field) if found and limit_name else None


def name_attr(name: str) -> str:
    """The attribute that is called like a limit or a resource, in records that count by name.

    A name that the record needs for itself gets a sign that no name can have.
    """
    return f"#{name}" if name in _OWN_ATTRIBUTES else name


def parse_name_attr(attribute: str) -> str | None:
    """The name that such an attribute counts for; None when it is the record's own."""
    if attribute.startswith("#"):
        return attribute[1:]
    return None if attribute in _OWN_ATTRIBUTES or "#" in attribute else attribute


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
    """The moment, in seconds since the epoch, at which a record may go."""
    return now_ms // 1000 + seconds


def key(pk: str, sk: str) -> dict[str, Any]:
    """A primary key as DynamoDB takes it."""
    return {"PK": {"S": pk}, "SK": {"S": sk}}


def get_table_definition(table_name: str) -> dict[str, Any]:
    """What `CreateTable` takes."""
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
