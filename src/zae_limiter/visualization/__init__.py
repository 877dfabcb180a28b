"""Usage as text: tables and charts.

Read `usage` first, which turns usage snapshots into either; `table` draws ASCII grids and `chart`
column charts.
"""

from .table import TableRenderer
from .usage import UsageFormatter, format_usage_snapshots

__all__ = ["TableRenderer", "UsageFormatter", "format_usage_snapshots"]
