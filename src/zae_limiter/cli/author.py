"""This module finds out who makes a change, for the audit events of commands."""

from __future__ import annotations

import getpass
import re
from contextlib import closing, suppress
from urllib.parse import parse_qs, urlsplit

_ODD = re.compile(r"[^A-Za-z0-9_.@-]")


def find_author(url: str) -> str:
    """Return the ARN of the caller for a table on AWS, and the user of the system elsewhere."""
    parts = urlsplit(url)
    if parts.scheme == "dynamodb" and "endpoint_url" not in parse_qs(parts.query):
        with suppress(Exception):
            # Whoever may not ask who they are may still change limits.
            from ..infra.aws import Aws

            with closing(Aws(parts.hostname or None)) as aws:
                return str(aws["sts"].get_caller_identity()["Arn"])
    return _system_user()


def _system_user() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "unknown"
    # An id begins with a letter or a digit and holds no blanks.
    return _ODD.sub("-", user).lstrip("_.@-") or "unknown"
