"""Writes the policies in docs/aws.md from the code: `python -m tests.docs.aws_policies`."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from zae_limiter.infra.arns import StackArns
from zae_limiter.infra.deployer_policy import deployer_document
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.policies import (
    aggregator_document,
    policy_documents,
    provisioner_document,
)

PAGE = Path(__file__).parent.parent.parent / "docs" / "aws.md"
_BLOCK = re.compile(r"<!-- policy: (\S+) -->\n.*?<!-- end -->\n", re.S)
_LIST = re.compile(r"\[\n\s+(\"[^\]\[{}]*?)\n(\s*)\]")
_WIDTH = 110


def documents() -> dict[str, dict[str, Any]]:
    """Every policy of a stack named my-app."""
    arns = StackArns("my-app", "us-east-1", "123456789012")
    lambdas = aggregator_document(arns.places, archives=True, traces=False)
    return {
        **policy_documents(arns.places),
        "aggregator": lambdas,
        "provisioner": provisioner_document(arns.places, traces=False),
        "deployer": deployer_document(arns, StackOptions()),
    }


def pretty(document: dict[str, Any]) -> str:
    """JSON in which lists of texts fill their lines."""
    return _LIST.sub(_filled, json.dumps(document, indent=2))


def _filled(match: re.Match[str]) -> str:
    texts = " ".join(match[1].split())
    if len(texts) <= _WIDTH - 30:
        return f"[{texts}]"
    indent = match[2] + "  "
    lines = textwrap.fill(
        texts, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return f"[\n{lines}\n{match[2]}]"


def render(page: str) -> str:
    """The page with its policies as they are in the code."""
    made = documents()

    def block(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- policy: {name} -->\n```json\n{pretty(made[name])}\n```\n<!-- end -->\n"

    return _BLOCK.sub(block, page)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
