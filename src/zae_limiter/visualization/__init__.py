"""Usage as text: tables and charts."""

from .table import TableRenderer
from .usage import UsageFormatter, format_usage_snapshots

__all__ = ["TableRenderer", "UsageFormatter", "format_usage_snapshots"]
