"""The stores, each in a package of its own: memory, sqlite, dynamodb.

Read `memory` first: it is `core.apply` over dictionaries. Then `sqlite`, the same in one file, and
`dynamodb`, where each write is one conditional request. Between them:

    urls, store_url    choosing a store by URL; the registry of schemes
    locked_buckets     read, apply, keep: bucket writes of stores that can lock
    paging, states     one page of snapshots in hand; what a namespace's state forbids
    damage             a record that cannot be read is left out of a list, with a warning
"""
