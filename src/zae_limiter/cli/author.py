"""This module finds out who makes a change, for the audit events of commands."""

from __future__ import annotations

import getpass
import os
import re
from contextlib import closing, suppress
from urllib.parse import parse_qs, urlsplit

from ..infra.aws import Aws

# A network may swallow requests to STS, and nobody would wait for minutes to set a limit.
_PATIENCE_S = 3.0
_ODD = re.compile(r"[^A-Za-z0-9_.@-]")


def find_author(url: str) -> str:
    """Return the ARN of the caller for a table on AWS, and the user of the system elsewhere."""
    parts = urlsplit(url)
    elsewhere = "endpoint_url" in parse_qs(parts.query) or "AWS_ENDPOINT_URL_DYNAMODB" in os.environ
    if parts.scheme == "dynamodb" and not elsewhere:
        aws = Aws(parts.hostname or None, patience_s=_PATIENCE_S)
        # Whoever may not ask who they are may still change limits.
        with suppress(Exception), closing(aws):
            return str(aws["sts"].get_caller_identity()["Arn"])
    return _system_user()


def _system_user() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "unknown"
    # An id begins with a letter or a digit and holds no blanks.
    return _ODD.sub("-", user).lstrip("_.@-") or "unknown"
