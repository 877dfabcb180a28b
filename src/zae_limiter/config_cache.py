"""The configuration cache and its statistics, for imports by path."""

from .core.models import CacheStats, ConfigSource
from .flows.config.cache import ConfigCache

__all__ = ["CacheStats", "ConfigCache", "ConfigSource"]
