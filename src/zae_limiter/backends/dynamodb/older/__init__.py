"""Records of the shapes that tables had before schema 0.10, and their way into today's.

    keys      without a namespace: `ENTITY#id` for `{ns}/ENTITY#id`
    records   fields in one map: `data.M`
    limits    one item for each: `#LIMIT#{resource}#{limit}`, or `#LIMIT#{limit}`
    buckets   one item for each limit: `#BUCKET#{resource}#{limit}`, flat, nested, or nested with a
              flat counter; later one item for all: `#BUCKET#{resource}`

Read `records` first (how an old record is told and read), then `old_buckets` (buckets, which
clients move when they need them), then `moving` (all other records, and whole tables).
"""
