"""Tools that any process needs and that know nothing of rate limits.

`bounded` is a map that cannot grow without end. `fork_safety` makes locks that are free in the
child of a fork. `single_flight`, which stands on it, merges equal calls that are made at the same
time. `deadline` is the time by which the call under way must end, and
`breaker` refuses calls to a store that does not answer.
"""
