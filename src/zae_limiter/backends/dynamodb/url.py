"""The URL of a store in a DynamoDB table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import SplitResult, parse_qsl, quote, unquote

from ...core.exceptions import ValidationError
from ...core.validation import validate_stack_name
from ...ports.io import Io
from ..store_url import OpenRequest, StoreUrl

if TYPE_CHECKING:
    from .opening import Creation
    from .store import DynamoStore
    from .wire.edge import Limits

_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_TIMEOUTS = ("connect_timeout", "read_timeout", "total_timeout")
_OPTIONS = {"endpoint_url", *_TIMEOUTS}


@dataclass(frozen=True, slots=True)
class DynamoUrl(StoreUrl):
    """A table of AWS, or of another server that speaks DynamoDB's protocol."""

    scheme = "dynamodb"
    forms = "dynamodb://us-east-1/my-stack"
    is_embedded = False

    stack: str = ""

    @classmethod
    def parse(cls, text: str, parts: SplitResult) -> Self:
        if len(parts.path) < 2:
            raise ValidationError("url", text, f"names no stack; it must be like {cls.forms}")
        region = _parse_region(parts)
        query = parse_qsl(parts.query, keep_blank_values=True)
        options = dict(query)
        if parts.fragment or len(options) < len(query) or not options.keys() <= _OPTIONS:
            known = ", ".join(sorted(_OPTIONS))
            raise ValidationError("url", text, f"takes each of {known} once, and no fragment")
        stack = validate_stack_name(unquote(parts.path[1:]), "stack")
        found = cls(text, region, options.get("endpoint_url") or None, stack=stack)
        return found.with_timeouts(*(_seconds(options, name) for name in _TIMEOUTS))

    @property
    def name(self) -> str:
        return self.stack

    def prepare(self, io: Io, *, blocking: bool) -> DynamoStore:
        """Return the store without reaching its table."""
        from .store import DynamoStore

        return DynamoStore.prepare(
            self.stack,
            io,
            blocking=blocking,
            region=self.region,
            endpoint_url=self.endpoint_url,
            limits=self._limits(),
        )

    def _limits(self) -> Limits:
        from .wire.edge import Limits

        usual = Limits()
        return Limits(
            self.connect_timeout or usual.connect_timeout_s,
            self.read_timeout or usual.read_timeout_s,
            total_timeout_s=self.patience_s,
            breaker_failures=self.breaker_failures,
        )

    async def open(self, io: Io, request: OpenRequest) -> DynamoStore:
        # Imported here: a program that only writes a URL need not wait for the client.
        from .store import DynamoStore

        return await DynamoStore.open(
            self.stack,
            io,
            blocking=request.blocking,
            region=self.region,
            endpoint_url=self.endpoint_url,
            transport=request.transport,
            limits=self._limits(),
            create=_creation(request),
        )


def _creation(request: OpenRequest) -> Creation:
    if not request.create:
        return "never"
    return "always" if request.create_table else "elsewhere"


def dynamodb_url(stack: str, region: str | None = None, endpoint_url: str | None = None) -> str:
    """Write the URL of a stack. Without a region, that of the environment or the profile counts."""
    query = f"?endpoint_url={_quoted('endpoint_url', endpoint_url)}" if endpoint_url else ""
    return f"dynamodb://{_quoted('region', region or '')}/{_quoted('stack', stack)}{query}"


def _quoted(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValidationError(field, value, f"must be a string, not {type(value).__name__}")
    return quote(value, safe="")


def _parse_region(parts: SplitResult) -> str | None:
    region = unquote(parts.netloc)
    if region and not _REGION.fullmatch(region):
        shown = f"{parts.scheme}://{region}"
        raise ValidationError("region", shown, "must be like us-east-1")
    return region or None


def _seconds(options: Mapping[str, str], name: str) -> float | None:
    try:
        return float(options[name]) if name in options else None
    except ValueError as error:
        raise ValidationError(name, options[name], "must be a number of seconds") from error
