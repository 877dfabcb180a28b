"""This module is the steps that open a repository one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from .core.exceptions import ValidationError, hide_userinfo
from .core.models import OnUnavailableAction
from .core.validation import validate_namespace
from .deployed import deploy_stack
from .infra.options import StackOptions
from .naming import DEFAULT_NAMESPACE, resolve_stack_name
from .stack_steps import StackSteps


@dataclass(slots=True)
class _Choices:
    """The arguments of `open` that were chosen, and the choices that take effect afterwards."""

    arguments: dict[str, Any] = field(default_factory=dict)
    namespace: str = DEFAULT_NAMESPACE
    on_unavailable: OnUnavailableAction | None = None


class BuilderSteps(StackSteps):
    """A builder takes its steps in any order; each step returns the builder."""

    def __init__(self) -> None:
        super().__init__()
        self._choices = _Choices()

    def __repr__(self) -> str:
        chosen = {"namespace": self._choices.namespace, **self._choices.arguments}
        steps = {**chosen, **self._stack_options}
        # A URL may hold a password.
        told = ", ".join(f"{name}={hide_userinfo(repr(each))}" for name, each in steps.items())
        return f"<{type(self).__name__} {told}>"

    def _deployment(self) -> Callable[[], None] | None:
        """Return the call that deploys the stack, if a step asks for that. It blocks."""
        if not self._stack_options:
            return None
        options, chosen = StackOptions(**self._stack_options), self._choices.arguments
        if chosen.get("url"):
            raise ValidationError("url", chosen["url"], "names no stack to deploy")
        stack = resolve_stack_name(chosen.get("stack"))
        return partial(
            deploy_stack, stack, chosen.get("region"), chosen.get("endpoint_url"), options
        )

    def _with(self, **arguments: Any) -> Self:
        self._choices.arguments |= arguments
        return self

    def url(self, url: str) -> Self:
        """Choose the store by its URL, such as `sqlite:///limits.db`."""
        return self._with(url=url)

    def stack(self, name: str) -> Self:
        """Choose the stack, which is also the name of the table."""
        return self._with(stack=name)

    def region(self, name: str) -> Self:
        """Choose the AWS region."""
        return self._with(region=name)

    def endpoint_url(self, url: str) -> Self:
        """Choose the endpoint of DynamoDB, if it is not AWS."""
        return self._with(endpoint_url=url)

    def create(self, value: bool = True) -> Self:
        """Create the table if there is none."""
        return self._with(create=value)

    def auto_update(self, enabled: bool = True) -> Self:
        """Choose whether a deployed Lambda that is older than the client is updated."""
        return self._with(auto_update=enabled)

    def transport(self, name: str) -> Self:
        """Choose the transport: `wire` or `botocore`."""
        return self._with(transport=name)

    def connect_timeout(self, seconds: float) -> Self:
        """Choose how long the client waits for a connection to DynamoDB."""
        return self._with(connect_timeout=seconds)

    def read_timeout(self, seconds: float) -> Self:
        """Choose how long the client waits for each answer of DynamoDB."""
        return self._with(read_timeout=seconds)

    def total_timeout(self, seconds: float) -> Self:
        """Choose how long a call waits for the store at most, all retries included."""
        return self._with(total_timeout=seconds)

    def breaker_failures(self, count: int) -> Self:
        """Choose after how many failures in a row calls are refused at once; 0 is never."""
        return self._with(breaker_failures=count)

    def namespace(self, name: str) -> Self:
        """Choose the namespace, which must be registered; `default` always is."""
        self._choices.namespace = validate_namespace(name)
        return self

    def config_cache_ttl(self, seconds: float) -> Self:
        """Choose how long configuration is cached."""
        return self._with(config_cache_ttl=seconds)

    def bucket_ttl_multiplier(self, value: int) -> Self:
        """Choose when an unused bucket may expire: after so many times the time that it takes to
        fill."""
        return self._with(bucket_ttl_multiplier=value)

    def coalesce(self, value: bool = True) -> Self:
        """Choose whether writes of this process that meet at a bucket item are sent as one."""
        return self._with(coalesce=value)

    def linger_ms(self, value: float) -> Self:
        """Choose how long a batch waits for followers."""
        return self._with(linger_ms=value)

    def refusal_cache_ttl(self, seconds: float) -> Self:
        """Choose how long a refusal is remembered."""
        return self._with(refusal_cache_ttl=seconds)

    def refusal_cache_size(self, entries: int) -> Self:
        """Choose how many refusals are remembered."""
        return self._with(refusal_cache_size=entries)

    def rejection_cache_ttl(self, seconds: float) -> Self:
        """Choose how long a refusal is remembered: another name of `refusal_cache_ttl`."""
        return self._with(rejection_cache_ttl=seconds)

    def rejection_cache_size(self, entries: int) -> Self:
        """Choose how many refusals are remembered: another name of `refusal_cache_size`."""
        return self._with(rejection_cache_size=entries)

    def on_unavailable(self, value: OnUnavailableAction) -> Self:
        """Store, for all clients, what happens to calls while the store cannot answer."""
        if value not in ("allow", "block"):
            raise ValidationError("on_unavailable", value, "must be allow or block")
        self._choices.on_unavailable = value
        return self
