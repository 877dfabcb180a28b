"""The steps that open a repository one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from .core.exceptions import ValidationError
from .core.models import OnUnavailableAction
from .core.validation import validate_namespace
from .opening import DEFAULT_NAMESPACE


@dataclass(slots=True)
class _Choices:
    """What was chosen: arguments of `open`, and what is done afterwards."""

    arguments: dict[str, Any] = field(default_factory=dict)
    namespace: str = DEFAULT_NAMESPACE
    on_unavailable: OnUnavailableAction | None = None


class BuilderSteps:
    """The steps of both builders, in any order; each returns the builder."""

    def __init__(self) -> None:
        self._choices = _Choices()

    def _with(self, **arguments: Any) -> Self:
        self._choices.arguments |= arguments
        return self

    def url(self, url: str) -> Self:
        """The store, such as `sqlite:///limits.db`."""
        return self._with(url=url)

    def stack(self, name: str) -> Self:
        """The stack, whose table has its name."""
        return self._with(stack=name)

    def region(self, name: str) -> Self:
        """The AWS region."""
        return self._with(region=name)

    def endpoint_url(self, url: str) -> Self:
        """Where DynamoDB is, if not at AWS."""
        return self._with(endpoint_url=url)

    def create(self, value: bool = True) -> Self:
        """Make the table if there is none."""
        return self._with(create=value)

    def transport(self, name: str) -> Self:
        """`wire` or `botocore`."""
        return self._with(transport=name)

    def connect_timeout(self, seconds: float) -> Self:
        """How long a connection to DynamoDB is waited for."""
        return self._with(connect_timeout=seconds)

    def read_timeout(self, seconds: float) -> Self:
        """How long each answer of DynamoDB is waited for."""
        return self._with(read_timeout=seconds)

    def namespace(self, name: str) -> Self:
        """The namespace, which must be registered; `default` always is."""
        self._choices.namespace = validate_namespace(name)
        return self

    def config_cache_ttl(self, seconds: float) -> Self:
        """How long configuration is remembered."""
        return self._with(config_cache_ttl=seconds)

    def bucket_ttl_multiplier(self, value: int) -> Self:
        """After how many times the time it takes to fill an unused bucket may go."""
        return self._with(bucket_ttl_multiplier=value)

    def coalesce(self, value: bool = True) -> Self:
        """Whether writes that meet at a bucket go together."""
        return self._with(coalesce=value)

    def linger_ms(self, value: float) -> Self:
        """How long a write waits for company."""
        return self._with(linger_ms=value)

    def refusal_cache_ttl(self, seconds: float) -> Self:
        """How long a refusal is remembered."""
        return self._with(refusal_cache_ttl=seconds)

    def on_unavailable(self, value: OnUnavailableAction) -> Self:
        """What is stored, for everyone, for the time when the store cannot answer."""
        if value not in ("allow", "block"):
            raise ValidationError("on_unavailable", value, "must be allow or block")
        self._choices.on_unavailable = value
        return self
