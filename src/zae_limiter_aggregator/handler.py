"""The function that Lambda calls with records of the table's stream.

Lambda delivers a batch again from the lowest sequence number that the answer names on, and so
does whatever is raised here. Records that were dealt with already change nothing then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from zae_limiter.flows.stream.batch import StreamWork

from .environment import read_environment
from .logs import log_fields, write_json_logs
from .processor import open_work, process_stream_records

_DIGITS = 40


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Deal with a batch. Answers with its counts, and with the record to begin again at if a write
    failed."""
    write_json_logs()
    result = process_stream_records(event.get("Records", []), opened_work())
    body = result.to_body()
    log_fields("Batch", request_id=getattr(context, "aws_request_id", None), **body)
    return {"statusCode": 200, "body": body, "batchItemFailures": lowest(result.failed)}


@lru_cache(maxsize=1)
def opened_work() -> StreamWork:
    """Open the table once for all batches of this process."""
    return open_work(read_environment(os.environ))


def lowest(failed: Iterable[str]) -> list[dict[str, str]]:
    """Return the failure that Lambda goes by: the lowest sequence number, which is a number of any
    length."""
    first = min(failed, key=lambda number: number.zfill(_DIGITS), default=None)
    return [] if first is None else [{"itemIdentifier": first}]
