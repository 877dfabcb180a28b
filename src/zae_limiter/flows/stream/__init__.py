"""The reader of a store's stream of changes: it counts usage, and looks after busy bucket items.

`aggregate` turns a batch of changes into additions to usage snapshots, and carries them out;
`refills` and `splits` write to the bucket items that the batch shows to be in need of it.
Planning is pure; a batch may be delivered any number of times, whole or in pieces.
"""
