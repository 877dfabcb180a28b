"""This module has the names of stacks and namespaces: their defaults, environment and rules."""

from __future__ import annotations

import os

from .core.validation import validate_namespace, validate_stack_name

DEFAULT_STACK_NAME = "zae-limiter"
DEFAULT_NAMESPACE = "default"
STACK_ENV_VAR = "ZAEL_STACK"
NAMESPACE_ENV_VAR = "ZAEL_NAMESPACE"

__all__ = [
    "DEFAULT_NAMESPACE",
    "DEFAULT_STACK_NAME",
    "NAMESPACE_ENV_VAR",
    "STACK_ENV_VAR",
    "resolve_namespace_name",
    "resolve_stack_name",
    "validate_stack_name",
]


def resolve_stack_name(stack: str | None) -> str:
    """Return the stack that is given, else that of `ZAEL_STACK`, else `zae-limiter`."""
    return validate_stack_name(
        stack or os.environ.get(STACK_ENV_VAR) or DEFAULT_STACK_NAME, "stack"
    )


def resolve_namespace_name(namespace: str | None) -> str:
    """Return the namespace that is given, else that of `ZAEL_NAMESPACE`, else `default`."""
    if namespace is None:
        namespace = os.environ.get(NAMESPACE_ENV_VAR) or DEFAULT_NAMESPACE
    return validate_namespace(namespace)
