"""The existing package's own stream handler, fed a file of records in its own environment.

python aggregator.py records.json
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Handle both halves of the records, and tell the CPU time of the second."""
    from zae_limiter_aggregator.handler import handler

    warm_up, event = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    context: Any = type("Context", (), {"aws_request_id": "bench", "function_name": "bench"})()
    with contextlib.redirect_stdout(io.StringIO()):
        handler(warm_up, context)
        began = time.process_time()
        answer = handler(event, context)
        spent_s = time.process_time() - began
    print(json.dumps({"cpu_s": spent_s, "answer": answer}), file=sys.stderr)


if __name__ == "__main__":
    main()
