"""Sharded buckets: one bucket spread over several items, each with its part of the capacity.

`items` draws, reads, splits and makes items; `multi_take` takes from several items what none has
alone; `split_amount` decides which item gives how much.
"""
