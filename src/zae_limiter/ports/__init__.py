"""Ports: the protocols through which flows reach the world and a store.

Read `io` first (time, ids, signals, parallel calls: answered by each driver in `runtime`), then
`repository_protocol` (the roles of a store and their contracts: answered by each folder of
`backends`). `clock` is the source of time of a driver, and `deployment` the extra role of stores
that live in a table. `stream` is a store's stream of changes with the checkpoints of its readers,
and `archive` a place for objects that are kept for long.
"""
