-- Apart from the other tables: a file that an older client made gets this one when it is opened.
-- One row is one receipt. `content` is all of it but its key and its revision.
CREATE TABLE IF NOT EXISTS receipts (
    namespace_id TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    revision     TEXT    NOT NULL,
    drops_at_ms  INTEGER NOT NULL,
    content      TEXT    NOT NULL,
    PRIMARY KEY (namespace_id, name)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS receipts_by_end ON receipts (drops_at_ms);
