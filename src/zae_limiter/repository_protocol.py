"""The port to a store, for imports by path."""

from .ports.repository_protocol import RepositoryProtocol

__all__ = ["RepositoryProtocol"]
