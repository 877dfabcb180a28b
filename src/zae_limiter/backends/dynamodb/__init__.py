"""The store in one DynamoDB table, shared by any number of machines.

Read in this order:

    schema             keys, indexes and attribute names of all records
    expressions        conditions and updates without a placeholder written by hand
    table              calls on items, and which of them may be sent twice
    bucket_attributes, bucket_codec, bucket_writes, buckets
                       bucket items, the five writes as requests, and their answers
    contention         optimistic locks on records that many clients change
    config_records, configs, registries, entities, namespaces, audit, usage, versions
                       the other roles, with `codec` and `item_reader` between values and items
    pages              queries, page by page
    url, opening, lifecycle
                       naming, reaching, creating and deleting the table

`wire` is the HTTP client below all of these.
"""
