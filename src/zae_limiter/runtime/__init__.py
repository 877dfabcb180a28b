"""Drivers: three ways to run the same flow, each with an `Io` of its own.

Read `blocking` first, the shortest: one `send(None)` runs a flow to its end. `parallel` gives it
threads or greenlets. `asyncio_driver` awaits flows, and holds cancellations back while a store call
is under way. `simulated` runs many processes on virtual time from one seed: `simulated_scheduler`
decides the order, `simulated_io` is one process's `Io`, `simulated_faults` loses and delays its
calls. `ids` and `system_clock` serve the two real drivers.
"""
