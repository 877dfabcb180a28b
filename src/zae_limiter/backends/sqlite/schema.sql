-- Names and ids are never empty, so '' stands for a part that a key does not have.

-- One row is one bucket. `shape` is what it has in common with others that have the same
-- limits, `state` the rest: when it was refilled, its acquires, tokens, counter and remainder
-- of each limit, and when it expires, if it does. `recent` are its last operations.
-- What it has used in the hour `usage_hour_ms` is what its counters have come to since
-- `usage_counted`; older hours are in `usage`. `look_at_s` is no later than its end. Rows this
-- long make a tall tree of a table without rowids.
CREATE TABLE IF NOT EXISTS buckets (
    namespace_id  TEXT    NOT NULL,
    entity_id     TEXT    NOT NULL,
    resource      TEXT    NOT NULL,
    shard         INTEGER NOT NULL,
    state         TEXT    NOT NULL,
    recent        TEXT    NOT NULL,
    shape         TEXT    NOT NULL,
    usage_hour_ms INTEGER NOT NULL,
    usage_counted TEXT    NOT NULL,
    look_at_s     INTEGER,
    PRIMARY KEY (namespace_id, entity_id, resource, shard)
);

CREATE INDEX IF NOT EXISTS buckets_by_resource ON buckets (namespace_id, resource);

CREATE INDEX IF NOT EXISTS buckets_by_look ON buckets (look_at_s)
    WHERE look_at_s IS NOT NULL;

CREATE TABLE IF NOT EXISTS usage (
    namespace_id TEXT    NOT NULL,
    entity_id    TEXT    NOT NULL,
    resource     TEXT    NOT NULL,
    hour_ms      INTEGER NOT NULL,
    counts       TEXT    NOT NULL,
    PRIMARY KEY (namespace_id, entity_id, resource, hour_ms)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS usage_by_resource ON usage (namespace_id, resource);

-- The rest of the primary key follows, so that the rows of an hour are in the order of owners.
CREATE INDEX IF NOT EXISTS usage_by_hour ON usage (namespace_id, hour_ms);

-- A deleted record stays, saying nothing, to keep counting versions.
CREATE TABLE IF NOT EXISTS configs (
    namespace_id   TEXT    NOT NULL,
    entity_id      TEXT    NOT NULL,
    resource       TEXT    NOT NULL,
    limits         TEXT,
    inherit        INTEGER,
    on_unavailable TEXT,
    auto_update    INTEGER,
    strict_version INTEGER,
    config_version INTEGER NOT NULL,
    PRIMARY KEY (namespace_id, entity_id, resource)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS configs_by_resource ON configs (namespace_id, resource);

-- The records of `configs` that a manifest manages, and what it says of them. A record may be
-- gone: then somebody else has deleted it.
CREATE TABLE IF NOT EXISTS managed (
    namespace_id TEXT NOT NULL,
    entity_id    TEXT NOT NULL,
    resource     TEXT NOT NULL,
    mark         TEXT NOT NULL,
    PRIMARY KEY (namespace_id, entity_id, resource)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS entities (
    namespace_id TEXT    NOT NULL,
    entity_id    TEXT    NOT NULL,
    name         TEXT,
    parent_id    TEXT,
    cascade      INTEGER NOT NULL,
    metadata     TEXT    NOT NULL,
    created_at   TEXT,
    version      INTEGER NOT NULL,
    PRIMARY KEY (namespace_id, entity_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS entities_by_parent ON entities (namespace_id, parent_id)
    WHERE parent_id IS NOT NULL;

CREATE TABLE IF NOT EXISTS namespaces (
    position     INTEGER PRIMARY KEY,
    namespace_id TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    status       TEXT NOT NULL,
    deleted_at   TEXT
);

CREATE UNIQUE INDEX IF NOT EXISTS namespaces_active ON namespaces (name)
    WHERE status = 'active';

CREATE TABLE IF NOT EXISTS audit (
    position     INTEGER PRIMARY KEY,
    namespace_id TEXT NOT NULL,
    entity_id    TEXT NOT NULL,
    event_id     TEXT NOT NULL,
    timestamp    TEXT NOT NULL,
    action       TEXT NOT NULL,
    principal    TEXT,
    resource     TEXT,
    details      TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS audit_by_entity ON audit (namespace_id, entity_id, event_id);
