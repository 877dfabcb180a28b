"""Distributed token-bucket rate limits: exact, one round trip, several limits per call."""

from ._version import __version__

__all__ = ["__version__"]
