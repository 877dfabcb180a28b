"""Many clients of one store in one thread, in an order and with faults that a seed decides.

    simulation = Simulation(seed=7)
    client = simulation.client(MemoryStore(), Faults(lost_answers=0.1), ahead_ms=250)
    simulation.spawn(client, some_flow(client.io, client.store))
    simulation.run()

A flow is an `async def` that awaits only its `Io` and its store. The same seed gives the
same run, step by step, so a failure that was found by chance is found again at will.
"""

from ..runtime.simulated import Client, Simulation
from ..runtime.simulated_faults import Faults
from ..runtime.simulated_scheduler import Cancelled, Killed

__all__ = ["Cancelled", "Client", "Faults", "Killed", "Simulation"]
