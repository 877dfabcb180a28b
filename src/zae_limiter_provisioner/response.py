"""The answer to CloudFormation, which waits for it at a pre-signed URL."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError, URLError

from zae_limiter.core.text import printable

# CloudFormation takes 4,096 bytes, and JSON writes a quote as two.
_MAX_REASON_BYTES = 1_500
_TIMEOUT_S = 10
_WAITS_S = (1.0, 3.0, 9.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request, for CloudFormation."""

    physical_id: str
    reason: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def body(self, event: Mapping[str, Any]) -> bytes:
        """Return the answer to an event."""
        reason = printable(self.reason).encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
        said = {
            "Status": "FAILED" if self.reason else "SUCCESS",
            "Reason": reason,
            "PhysicalResourceId": self.physical_id,
            "StackId": event["StackId"],
            "RequestId": event["RequestId"],
            "LogicalResourceId": event["LogicalResourceId"],
            "Data": dict(self.data),
        }
        return json.dumps(said, ensure_ascii=False).encode()


def send_outcome(event: Mapping[str, Any], outcome: Outcome) -> None:
    """Send the answer. If it cannot be sent, Lambda runs the event again, and CloudFormation
    waits: without an answer, it would wait for an hour."""
    url = event["ResponseURL"]
    if not str(url).startswith(("https://", "http://")):
        raise ValueError("ResponseURL is no web address")
    for wait_s in _WAITS_S:
        try:
            _put(url, outcome.body(event))
            return
        except HTTPError as error:
            if error.code < 500:
                raise
        except (URLError, TimeoutError, OSError):
            pass
        time.sleep(wait_s)
    _put(url, outcome.body(event))


def _put(url: str, body: bytes) -> None:
    # The URL is signed for a request without a content type.
    request = urllib.request.Request(url, body, {"Content-Type": ""}, method="PUT")
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        answer.read()
