"""Stored configuration: which limits are in force, and for how long that is remembered.

Read `resolve` first: the flow from a question to its answer, with at most one read of the store.
`resolution` is the answer, and how the records of an entity and those that all entities share
come to it. `cache` holds what the process has read, in three layers; `entity_cache` is the
largest of them. `registration` confirms that the namespace is still there.
"""
