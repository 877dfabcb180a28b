"""Calls that flows really make to DynamoDB, recorded on their way and seen as IAM sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tests.support.iam import IamRequest, dynamodb_requests
from tests.support.servers.chaos import ChaosProxy
from tests.support.servers.tables import OwnTable

TABLE_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/my-app"


@dataclass
class Recording:
    """The requests of one block."""

    requests: list[IamRequest] = field(default_factory=list)

    def of_actions(self, *names: str) -> list[IamRequest]:
        return [r for r in self.requests if r.action.removeprefix("dynamodb:") in names]


@dataclass(frozen=True)
class RecordedTable:
    """A table behind a proxy that writes down what is asked of it."""

    table: OwnTable
    proxy: ChaosProxy

    @property
    def url(self) -> str:
        server = replace(self.table.server, url=self.proxy.url)
        return replace(self.table, server=server).url

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record what is asked during a block."""
        begun = len(self.proxy.requests)
        made = Recording()
        yield made
        for request, _ in self.proxy.requests[begun:]:
            body = json.loads(request.body)
            made.requests += dynamodb_requests(request.operation, body, TABLE_ARN)
