"""The use cases, written once as `async def` over `ports.io` and `ports.repository_protocol`.

    scope      the namespace, store, driver and process state that every flow is given
    acquire/   leases: charging, correcting, refunding, waiting
    receipts/  charges that other processes can find, repeat and end
    coalesce/  group commit: callers of one process share a write
    shards/    buckets that are split over several items
    config/    which limits are in force, and the cache of that
    stream/    usage and busy items, out of a store's stream of changes
    admin/     stored limits, entities, namespaces, usage, audit, deployment

A flow never touches asyncio, threads, clocks or clients.
"""
