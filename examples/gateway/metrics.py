"""Metrics of one worker, on a port of its own: a scrape must not hit some worker by chance."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from zae_limiter import Repository
from zae_limiter.integrations.prometheus import AcquireDurations, LimiterCollector

_FIRST_PORT = int(os.environ.get("METRICS_PORT", "9400"))
_MOST_WORKERS = 32


@contextmanager
def metrics_served(repository: Repository) -> Iterator[None]:
    """Serve metrics on the first port that no other worker has taken."""
    registry = CollectorRegistry()
    registry.register(LimiterCollector(repository))
    repository.listen(AcquireDurations(registry))
    for port in range(_FIRST_PORT, _FIRST_PORT + _MOST_WORKERS):
        try:
            server, thread = start_http_server(port, "127.0.0.1", registry)
            break
        except OSError:
            continue
    else:
        raise RuntimeError(f"no free port from {_FIRST_PORT} on")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
