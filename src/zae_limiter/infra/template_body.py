"""A template that is deployed already, read from the text that CloudFormation keeps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

_WITHOUT_PREFIX = ("Ref", "Condition")


def parse_template(body: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a template as a value. boto3 has read JSON already; short forms of functions, which
    only YAML has, become their long forms."""
    if not isinstance(body, str):
        return body
    import yaml

    parsed: Mapping[str, Any] = yaml.load(body, Loader=_loader())
    return parsed


@cache
def _loader() -> Any:
    import yaml

    # Only plain values are made, as by the safe loader, and maps with the name of a function.
    loader = type("TemplateLoader", (yaml.SafeLoader,), {})
    yaml.add_multi_constructor("!", _function, Loader=loader)
    return loader


def _function(loader: Any, name: str, node: Any) -> dict[str, Any]:
    kind: str = node.id
    construct = {
        "scalar": loader.construct_scalar,
        "sequence": lambda each: loader.construct_sequence(each, deep=True),
        "mapping": lambda each: loader.construct_mapping(each, deep=True),
    }
    value = construct[kind](node)
    if name == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {name if name in _WITHOUT_PREFIX else f"Fn::{name}": value}
