"""Sharded buckets: one bucket spread over several items, each with its part of the capacity.

`items` draws, reads and splits items; `holes` makes items that are missing, `merge` undoes splits;
`multi_take` takes from several items what none has alone, `split_amount` decides which item gives
how much; `debt` shares a debt among all items. `upkeep` looks at a split bucket from time to time,
by what the process knows of it (`known_split`).
"""
