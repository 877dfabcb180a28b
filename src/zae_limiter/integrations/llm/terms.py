"""The terms under which calls of models are charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.exceptions import ValidationError
from ..rule import LimitTexts, Reservation, read_limits
from .estimate import estimate, estimate_input, four_bytes_a_token
from .usage import TokenUsage

LlmArguments = Mapping[str, Any]


def requests_and_tokens(used: TokenUsage) -> dict[str, int]:
    """Return the usual amounts of a call: one of the limit `rpm`, and all its tokens of `tpm`."""
    return {"rpm": 1, "tpm": used.total_tokens}


@dataclass(frozen=True)
class LlmTerms:
    """How calls are charged.

    `cost`: amounts by limit, from the tokens estimated before the call and from those used.
    `resource`: what is limited; a name, or a function of the model's name; the model by default.
    `count_text`: counts the tokens of a text. `count_input`: those of a call's arguments.
    `max_output_tokens`: the longest answer of calls that name no cap themselves.
    `limits` replace the stored ones. `timeout`: how long a call may wait, for tokens and for a
    provider that has asked not to be called.
    """

    cost: Callable[[TokenUsage], Mapping[str, int]] = requests_and_tokens
    resource: str | Callable[[str], str] | None = None
    count_text: Callable[[str], int] = four_bytes_a_token
    count_input: Callable[[LlmArguments], int] | None = None
    max_output_tokens: int = 1024
    limits: LimitTexts | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", read_limits(self.limits))

    def resource_of(self, arguments: LlmArguments) -> str:
        """Return the name of what a call is charged to."""
        if isinstance(self.resource, str):
            return self.resource
        model = arguments.get("model")
        if not isinstance(model, str):
            raise ValidationError("model", model, "must be given by name")
        return model if self.resource is None else self.resource(model)

    def estimate(self, arguments: LlmArguments) -> TokenUsage:
        """Return the tokens to reserve for a call."""
        return estimate(arguments, self.count_input or self._count_input, self.max_output_tokens)

    def reservation(self, entity_id: str, resource: str, estimated: TokenUsage) -> Reservation:
        """Return what to reserve for a call."""
        return {
            "entity_id": entity_id,
            "resource": resource,
            "consume": dict(self.cost(estimated)),
            "limits": read_limits(self.limits),
            "timeout": self.timeout,
        }

    def _count_input(self, arguments: LlmArguments) -> int:
        return estimate_input(arguments, self.count_text)
