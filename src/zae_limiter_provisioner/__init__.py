"""The Lambda that applies declared limits: a thin shell over `zae_limiter.flows.admin.provision`.

`handler` answers CloudFormation and direct calls, `requests` reads what they ask for, `work` plans
and applies, `response` tells CloudFormation the outcome.
"""

from __future__ import annotations

from .handler import on_event

__all__ = ["on_event"]
