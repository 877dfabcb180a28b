"""The reader of a store's stream of changes: it counts usage, and looks after busy bucket items.

`aggregate` turns a batch of changes into additions to usage snapshots, and carries them out;
`archive` keeps audit events that expired; `batch` does both for a batch, and `follow` for a stream
as long as it goes on. `progress` says how far a reader is, and `sharing` which shards it should
have. `refills` and `splits` write to the bucket items that the batch shows to be in need of it.
Planning is pure; a batch may be delivered any number of times, whole or in pieces.
"""
