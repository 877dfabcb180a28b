"""Attacks on a running limiter, with real processes, servers and faults.

`python -m tests.attacks` runs them for as long as you like; short runs are tests.
"""
