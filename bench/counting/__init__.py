"""Counts what passes between a limiter and its server, in the same way for every limiter.

Counting is a measurement of its own, since it takes time: nothing is timed meanwhile."""
